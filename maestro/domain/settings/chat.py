"""The settings of the `#maestro` chat and of the scanner for secrets."""

import re
from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from maestro.domain.fields import OptionalIdentifier
from maestro.domain.redaction import AllowList, ScanRules, allow_list_entry_problem
from maestro.domain.settings.section import Section, live, setting


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise ValueError("expected a regular expression that Python accepts; correct this one") from None
    return pattern


Pattern = Annotated[str, Field(max_length=2_000), AfterValidator(_check_pattern)]


def _check_allow_entry(entry: str) -> str:
    problem = allow_list_entry_problem(entry)
    if problem is not None:
        raise ValueError(problem)
    return entry


Allowed = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_check_allow_entry)]


class ChatLimits(Section):
    """The limits of a post."""

    max_message_chars: int = live(4096, "characters of the longest post; longer ones are cut", ge=64, le=65_536)


class ScannerSettings(Section):
    """The scan for secrets in texts of agents and users."""

    enabled: bool = live(True, "whether texts are scanned and secrets redacted")
    timeout_ms: int = live(800, "milliseconds that the scan of one text may take", ge=10, le=60_000)
    fail_mode: Literal["open", "closed"] = live(
        "open",
        "the treatment of a text that could not be scanned: `open` stores it, `closed` stores `[redacted]` instead",
    )
    patterns: tuple[Pattern, ...] = live((), "your own regular expressions for texts to redact", max_length=100)
    allow: tuple[Allowed, ...] = live(
        (), "findings that are no secrets: texts, or `re:` and a pattern that matches the whole finding", max_length=100
    )
    scope: tuple[Literal["memory", "tools", "logs", "prompts", "outgoing"], ...] = live(
        ("memory", "tools", "logs"),
        "the texts scanned besides posts: facts, tool results, the log, prompts and outgoing messages",
    )

    @cached_property
    def rules(self) -> ScanRules:
        """The rules of a scan, as the scanner takes them."""
        return ScanRules(self.enabled, self.timeout_ms, self.fail_mode, self.patterns, AllowList(self.allow))


class ChatSettings(Section):
    """The channel `#maestro`, in which agents and people post what they find."""

    enabled: bool = setting(True, "whether the channel exists")
    limits: ChatLimits = ChatLimits()
    scanner: ScannerSettings = ScannerSettings()
    poll_ms: int = live(1000, "milliseconds between two requests of the dashboard for new posts", ge=200, le=60_000)


class SessionSettings(Section):
    """The session of the channel: agents see only the posts of the open session."""

    id: OptionalIdentifier = setting("", "the session to use; empty: the open one, or a new one")
