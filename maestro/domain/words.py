"""The rules that a slug, a name or an id must keep, whoever writes it, each with the sentence that person reads."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, halves of characters, and what turns the direction of writing: a name would look like another."""


def matching(pattern: str, expectation: str) -> AfterValidator:
    """Return a rule for a word or a line, which has nothing in it that people do not see.

    The expectation never quotes the value, which may be a misplaced secret.
    """
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise ValueError(f"expected {expectation}")
        if _UNSEEN.search(text):
            raise ValueError("expected only characters that people can see; take out the others")
        return text

    return AfterValidator(check)


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("expected no NUL characters; take them out")
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
SearchText = Annotated[str, Field(max_length=1_000), AfterValidator(_without_nul)]
"""A part of a text to look for; a database stops to read at a NUL, and would find everything."""
Dollars = Annotated[float, Field(ge=0, le=1_000_000)]
Weight = Annotated[float, Field(ge=0.001, le=1000)]
"""Shares of what waits, as Temporal takes them."""
ToolName = Annotated[str, matching(r"[A-Za-z0-9_-]{1,64}", "the name of a tool: letters, digits, _ and -")]
ModelName = Annotated[str, matching(r"\S{1,200}", "the name of a model without blanks")]

DisplayName = Annotated[str, matching(r"(|\S(.{0,62}\S)?)", "up to 64 characters without a blank at either end")]
Description = Annotated[str, Field(max_length=2_000), AfterValidator(_without_nul)]
Voice = Annotated[str, Field(max_length=200), AfterValidator(_without_nul)]
Quirks = Annotated[
    tuple[Annotated[str, Field(max_length=500), AfterValidator(_without_nul)], ...], Field(max_length=20)
]
SystemPrompt = Annotated[str, Field(max_length=100_000), AfterValidator(_without_nul)]
PreferredModel = Annotated[str, matching(r"\S{0,200}", "the name of a model without blanks, or nothing")]
Fallbacks = Annotated[tuple[ModelName, ...], Field(max_length=20)]
ToolNames = Annotated[tuple[ToolName, ...], Field(max_length=200)]
SkillNames = Annotated[tuple[Slug, ...], Field(max_length=200)]
PeopleIds = Annotated[tuple[OwnerId, ...], Field(max_length=1_000)]
ClientName = Annotated[str, matching(r"(|\S(.{0,62}\S)?)", "the name of a client, or nothing")]
