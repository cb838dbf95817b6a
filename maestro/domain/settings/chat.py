"""The settings of the `#maestro` chat and of the scanner for secrets."""

import re
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from maestro.domain.fields import OptionalIdentifier
from maestro.domain.redaction import AllowList, ScanRules, problem_of_allowed
from maestro.domain.settings.section import Section, live, setting


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
    """The limits of a post."""

    max_message_chars: int = live(4096, "characters of the longest post; longer ones are cut", ge=64, le=65_536)


class ScannerSettings(Section):
    """The scan for secrets in texts of agents and users."""

    enabled: bool = live(True, "whether secrets are looked for and taken out")
    timeout_ms: int = live(800, "milliseconds one text may take", ge=10, le=60_000)
    fail_mode: Literal["open", "closed"] = live(
        "open",
        "what becomes of a text that could not be scanned: `open` keeps it, `closed` keeps `[redacted]` in its place",
    )
    patterns: tuple[Pattern, ...] = live((), "your own regular expressions for what must not be kept", max_length=100)
    allow: tuple[Allowed, ...] = live(
        (), "what is no secret and stays: texts, or `re:` and a pattern that matches all of a finding", max_length=100
    )
    scope: tuple[Literal["memory", "tools", "logs", "prompts", "outgoing"], ...] = live(
        ("memory", "tools", "logs"),
        "what is scanned beside posts: facts agents remember, results of tools, the log, prompts, and what is sent to "
        "people",
    )

    @cached_property
    def rules(self) -> ScanRules:
        """The rules of a scan, as the scanner takes them."""
        return ScanRules(self.enabled, self.timeout_ms, self.fail_mode, self.patterns, AllowList(self.allow))


class ChatSettings(Section):
    """The channel `#maestro`, in which agents and people post what they find."""

    enabled: bool = setting(True, "whether there is such a channel")
    limits: ChatLimits = ChatLimits()
    scanner: ScannerSettings = ScannerSettings()
    poll_ms: int = live(1000, "milliseconds between two looks of the dashboard", ge=200, le=60_000)


class SessionSettings(Section):
    """The session of the channel: agents see only the posts of the open session."""

    id: OptionalIdentifier = setting("", "the session to be in; empty: the open one, or a new one")
