"""The base classes of values and views, and the types of their fields, with validation rules and error messages."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from maestro.domain.errors import InvalidEdit

Item = TypeVar("Item")

_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, lone surrogates and direction marks, which make one name look like another."""

FIRST_YEAR = 1970
LAST_YEAR = 9998
"""The last year accepted: a later time may overflow when it is converted to another time zone."""

Shape = TypeVar("Shape", bound=BaseModel)

_SENTENCES = {
    "missing": "is missing; add it",
    "string_type": "expected a text",
    "string_unicode": "expected whole characters; remove the incomplete one",
    "bool_type": "expected true or false",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "literal_error": "expected {expected}",
    "tuple_type": "expected a list",
    "string_too_long": "must have at most {max_length} characters",
    "too_long": "must have at most {max_length} entries",
    "greater_than_equal": "must be at least {ge:.15g}",
    "less_than_equal": "must be at most {le:.15g}",
    "value_error": "{error}",
    "enum": "expected {expected}",
}


class Value(BaseModel):
    """The base class of immutable values; an unknown field is an error, so that typing errors are found."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Payload(Value):
    """The base class of what workflows and activities hand each other, and of recorded results of steps.

    Two releases may work side by side, so a field that a later release has added is ignored, and each field that is
    added has a default (ADR 48).
    """

    model_config = ConfigDict(extra="ignore")


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
    """A page of a list, with the cursor of the next page."""

    items: tuple[Item, ...]
    next: str | None = Field(description="the cursor of the next page, null on the last")


def readable_by(read: Callable[[str], object]) -> AfterValidator:
    """Return a validator that accepts a text if ``read`` can parse it, such as the cursor of a page."""

    def check(text: str) -> str:
        read(text)
        return text

    return AfterValidator(check)


def matching(pattern: str, expectation: str) -> AfterValidator:
    """Return a validator for a text that must match ``pattern`` as a whole and contain no invisible characters.

    The error message has ``expectation`` and never the value, which may be a misplaced secret.
    """
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise ValueError(f"expected {expectation}")
        if _INVISIBLE.search(text):
            raise ValueError("expected only visible characters; remove control characters and direction marks")
        return text

    return AfterValidator(check)


def _reject_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("expected no NUL characters; remove them")
    return text


Slug = Annotated[
    str, matching(r"[a-z0-9][a-z0-9-]{0,62}", "up to 63 lower-case letters, digits and hyphens, no hyphen first")
]
OptionalSlug = Annotated[str, matching(r"(|[a-z0-9][a-z0-9-]{0,62})", "a slug, or nothing")]
Word = Annotated[str, matching(r"[a-z][a-z0-9_-]{0,62}", "a lower-case word, such as assistant or web")]
Name = Annotated[str, matching(r"\S(.{0,62}\S)?", "1 to 64 characters without a blank at either end")]
OptionalIdentifier = Annotated[str, matching(r"\S{0,256}", "an id without blanks, or nothing")]
Identifier = Annotated[str, matching(r"\S{1,256}", "an id without blanks")]
AccountName = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", "up to 63 letters, digits, dots, hyphens and underscores")
]
OwnerId = Annotated[str, matching(r"[a-z][a-z0-9_-]*:\S+", "platform:userId, such as discord:1234")]
SearchText = Annotated[str, Field(max_length=1_000), AfterValidator(_reject_nul)]
"""A search text without NUL: a database would ignore the text after a NUL and find too much."""
Dollars = Annotated[float, Field(ge=0, le=1_000_000)]
Weight = Annotated[float, Field(ge=0.001, le=1000)]
"""A weight in a fair queue, in the range that Temporal accepts."""
ToolName = Annotated[str, matching(r"[A-Za-z0-9_-]{1,64}", "the name of a tool: letters, digits, _ and -")]
ModelName = Annotated[str, matching(r"\S{1,200}", "the name of a model without blanks")]

DisplayName = Annotated[str, matching(r"(|\S(.{0,62}\S)?)", "up to 64 characters without a blank at either end")]
Description = Annotated[str, Field(max_length=2_000), AfterValidator(_reject_nul)]
Voice = Annotated[str, Field(max_length=200), AfterValidator(_reject_nul)]
Quirks = Annotated[tuple[Annotated[str, Field(max_length=500), AfterValidator(_reject_nul)], ...], Field(max_length=20)]
SystemPrompt = Annotated[str, Field(max_length=100_000), AfterValidator(_reject_nul)]
PreferredModel = Annotated[str, matching(r"\S{0,200}", "the name of a model without blanks, or nothing")]
Fallbacks = Annotated[tuple[ModelName, ...], Field(max_length=20)]
ToolNames = Annotated[tuple[ToolName, ...], Field(max_length=200)]
SkillNames = Annotated[tuple[Slug, ...], Field(max_length=200)]
PeopleIds = Annotated[tuple[OwnerId, ...], Field(max_length=1_000)]
ClientName = Annotated[str, matching(r"(|\S(.{0,62}\S)?)", "the name of a client, or nothing")]


def _require_year_in_range(moment: datetime) -> datetime:
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"expected a time from {FIRST_YEAR} to {LAST_YEAR}")
    return moment


Moment = Annotated[AwareDatetime, AfterValidator(_require_year_in_range)]


def require_time_order(since: datetime | None, until: datetime | None) -> None:
    """Raise ``ValueError`` if ``since`` is after ``until``; None for either is valid."""
    if since is not None and until is not None and since > until:
        raise ValueError("since: expected a time that is not after until")


def read(shape: type[Shape], fields: Mapping[str, object]) -> Shape:
    """Return a validated instance of ``shape`` with these fields, by their JSON names or their names in code.

    Raises ``InvalidEdit``, which names every invalid field and never quotes a value.
    """
    try:
        return shape.model_validate(fields)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
    raise InvalidEdit("; ".join(f"{_field_path(problem['loc'])}{sentence(problem, shape)}" for problem in problems))


def sentence(problem: Mapping[str, Any], shape: type[BaseModel] | None = None) -> str:
    """Return Maestro's error message for one error of a pydantic validation."""
    if problem["type"] == "extra_forbidden" and shape is not None:
        known = ", ".join(field.alias or name for name, field in shape.model_fields.items())
        return f"unknown field; the fields are {known}"
    template = _SENTENCES.get(problem["type"])
    return template.format(**problem.get("ctx", {})) if template else str(problem["msg"])


def _field_path(location: tuple[int | str, ...]) -> str:
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{to_camel(part)}" for part in location)
    return f"{name.removeprefix('.')}: " if location else ""
