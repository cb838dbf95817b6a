"""The frozen bases of every value that crosses a boundary."""

from collections.abc import Callable

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Value(BaseModel):
    """A frozen pydantic value; an unknown field is an error, so a typo never passes silently."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class View(Value):
    """The base of what is shown to operators and read from them: camelCase in JSON."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True, from_attributes=True
    )


def readable_by(read: Callable[[str], object]) -> AfterValidator:
    """Return the validator of a text that ``read`` must be able to read, such as the cursor of a page."""

    def checked(text: str) -> str:
        read(text)
        return text

    return AfterValidator(checked)
