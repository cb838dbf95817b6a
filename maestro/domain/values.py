"""The base classes of immutable values and of the API's views."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Item = TypeVar("Item")


class Value(BaseModel):
    """The base class of immutable values; an unknown field is an error, so that typing errors are found."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class View(Value):
    """The base class of the API's requests and responses; their fields are camelCase in JSON."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True, from_attributes=True
    )

    @classmethod
    def from_row(cls, row: BaseModel, **others: Any) -> Self:
        """Build the view of a row; ``others`` are the values of fields that the row lacks or stores in another form."""
        return cls(**{**row.model_dump(include=set(cls.model_fields), by_alias=False), **others})


class Page(View, Generic[Item]):
    """A page of a list, with the cursor of the page after it."""

    items: tuple[Item, ...]
    next: str | None = Field(description="the cursor of the next page, null on the last")


def readable_by(read: Callable[[str], object]) -> AfterValidator:
    """Return a validator that accepts a text if ``read`` can parse it, such as the cursor of a page."""

    def check(text: str) -> str:
        read(text)
        return text

    return AfterValidator(check)
