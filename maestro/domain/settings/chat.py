"""The settings of the #maestro chat and of the scanner for secrets."""

import re
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from maestro.domain.scanning import AllowList, ScanRules, problem_of_allowed
from maestro.domain.settings.section import LIVE, Section
from maestro.domain.words import OptionalIdentifier


def _compiled(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise ValueError("expected a regular expression as Python reads it; this one it does not") from None
    return pattern


Pattern = Annotated[str, Field(max_length=2_000), AfterValidator(_compiled)]


def _allowable(entry: str) -> str:
    problem = problem_of_allowed(entry)
    if problem is not None:
        raise ValueError(problem)
    return entry


Allowed = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_allowable)]


class ChatLimits(Section):
    """What a post may take."""

    max_message_chars: int = Field(
        default=4096,
        ge=64,
        le=65_536,
        description="characters of the longest post; longer ones are cut",
        json_schema_extra=LIVE,
    )


class ScannerSettings(Section):
    """The search for secrets in what agents and people write."""

    enabled: bool = Field(
        default=True, description="whether secrets are looked for and taken out", json_schema_extra=LIVE
    )
    timeout_ms: int = Field(
        default=800, ge=10, le=60_000, description="milliseconds one text may take", json_schema_extra=LIVE
    )
    fail_mode: Literal["open", "closed"] = Field(
        default="open",
        description="what becomes of a text that could not be scanned: `open` keeps it, `closed` keeps `[redacted]` "
        "in its place",
        json_schema_extra=LIVE,
    )
    patterns: tuple[Pattern, ...] = Field(
        default=(),
        max_length=100,
        description="your own regular expressions for what must not be kept",
        json_schema_extra=LIVE,
    )
    allow: tuple[Allowed, ...] = Field(
        default=(),
        max_length=100,
        description="what is no secret and stays: texts, or `re:` and a pattern that matches all of a finding",
        json_schema_extra=LIVE,
    )
    scope: tuple[Literal["memory", "tools", "logs", "prompts", "outgoing"], ...] = Field(
        default=("memory", "tools", "logs"),
        description="what is scanned beside posts: facts agents remember, results of tools, the log, prompts, and what "
        "is sent to people",
        json_schema_extra=LIVE,
    )

    @cached_property
    def rules(self) -> ScanRules:
        """How a text is scanned."""
        return ScanRules(self.enabled, self.timeout_ms, self.fail_mode, self.patterns, AllowList(self.allow))


class ChatSettings(Section):
    """The channel `#maestro`, where agents and people share what they find out."""

    enabled: bool = Field(default=True, description="whether there is such a channel")
    limits: ChatLimits = ChatLimits()
    scanner: ScannerSettings = ScannerSettings()
    poll_ms: int = Field(
        default=1000,
        ge=200,
        le=60_000,
        description="milliseconds between two looks of the dashboard",
        json_schema_extra=LIVE,
    )


class SessionSettings(Section):
    """The session of the channel: agents see only what was posted in the one that is open."""

    id: OptionalIdentifier = Field(default="", description="the session to be in; empty: the open one, or a new one")
