"""The base of everything that can be set."""

from pydantic import ConfigDict, SecretStr
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from maestro.domain.values import Value

NO_SECRET = SecretStr("")

LIVE: JsonDict = {"live": True}
"""Marks a key that may be set while Maestro runs: whoever needs the value asks for it at each use (docs/invariants.md:
live settings). Every other key is read once, at the start."""


class Section(Value):
    """The base of all sections: camelCase in the file, snake_case in code; no error ever shows a value."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )
