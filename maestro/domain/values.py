"""The frozen bases of every value that crosses a boundary."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Value(BaseModel):
    """A frozen pydantic value; an unknown field is an error, so a typo never passes silently."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class View(Value):
    """The base of what is shown to operators and read from them: camelCase in JSON."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True, from_attributes=True
    )
