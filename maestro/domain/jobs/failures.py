"""Failures that are of the same kind: reasons without what differs from job to job."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from maestro.domain.values import View

ANY = "*"
"""Stands for what differs; a filter takes it for anything."""

LONGEST = 200
"""Characters of a pattern: what differs beyond them makes no other kind of failure."""

_READ = 2 * LONGEST
_DIFFERS = re.compile(
    r"(?<!\w)'[^'\n]*'(?!\w)"
    r"|\"[^\"\n]*\""
    r"|`[^`\n]*`"
    r"|(?<![\w.:+-])(?=[\w.:+-]*\d)\w(?:[\w.:+-]*\w)?"
)
_AGAIN = re.compile(r"\*(?:[\s,;/]*\*)+")


def pattern_of(reason: str) -> str:
    """Return a reason with ``*`` for each id, number and quoted value, so that a thousand of one kind are one."""
    found = _AGAIN.sub(ANY, _DIFFERS.sub(ANY, reason[:_READ]))
    whole = len(reason) <= _READ and len(found) <= LONGEST
    return found if whole else f"{found[:LONGEST].rstrip(ANY)}{ANY}"


@dataclass(frozen=True)
class Failures:
    """Jobs that failed at one step for one reason, of one agent."""

    error: str
    step: str
    reason: str
    agent: str | None
    count: int
    oldest: datetime
    newest: datetime
    example: str
    """The id of one of them, of those begun in the same way the one that came last."""


class ErrorGroup(View):
    """Failures of one kind: the class of the error, the step, and the reason with ``*`` for what differs.

    ``example`` is one of these jobs. The same ``error``, ``step`` and ``reason`` in a filter choose them.
    """

    error: str
    step: str
    reason: str
    count: int
    oldest: datetime
    newest: datetime
    example: str
    agents: tuple[str, ...]


class ErrorGroupPage(View):
    """All kinds of failures, the newest first; ``next`` is always null."""

    items: tuple[ErrorGroup, ...]
    next: str | None = None


def grouped(failures: Iterable[Failures]) -> ErrorGroupPage:
    """Put together what is of one kind."""
    kinds: dict[tuple[str, str, str], list[Failures]] = {}
    for one in failures:
        kinds.setdefault((one.error, one.step, pattern_of(one.reason)), []).append(one)
    groups = [_group(*kind, same) for kind, same in kinds.items()]
    return ErrorGroupPage(items=tuple(sorted(groups, key=lambda group: group.newest, reverse=True)))


def _group(error: str, step: str, reason: str, same: Sequence[Failures]) -> ErrorGroup:
    newest = max(same, key=lambda one: one.newest)
    return ErrorGroup(
        error=error,
        step=step,
        reason=reason,
        count=sum(one.count for one in same),
        oldest=min(one.oldest for one in same),
        newest=newest.newest,
        example=newest.example,
        agents=tuple(sorted({one.agent for one in same if one.agent is not None})),
    )
