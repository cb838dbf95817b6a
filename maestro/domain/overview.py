"""What operators see first: how much there is to do, how fast it goes, what fails, and what is open to the world."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from pydantic import JsonValue

from maestro.domain.errors import WaitReason
from maestro.domain.jobs.failures import pattern_of
from maestro.domain.jobs.job import JobStatus
from maestro.domain.network import LOCAL_NAMES

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
OPEN_DOOR = "open"
"""The dmPolicy that answers everybody."""


@dataclass(frozen=True)
class OldestJob:
    """The job that has waited longest, since when, and for what if it is no turn."""

    job_id: str
    since: datetime
    waits_for: WaitReason | None = None


@dataclass(frozen=True)
class FirstAnswer:
    """When a message came, and how long until the first part of its answer was sent."""

    received_at: datetime
    took: timedelta


@dataclass(frozen=True)
class AnswerTimes:
    """How long people waited for the first part of an answer, in milliseconds, and of how many messages."""

    count: int
    half_ms: float | None
    most_ms: float | None


@dataclass(frozen=True)
class FailureRecord:
    """A job that failed."""

    job_id: str
    error: str
    reason: str
    at: datetime


@dataclass(frozen=True)
class FailureKind:
    """Failures of one kind: ``reason`` has ``*`` for what differs, ``job_id`` is the newest of them."""

    error: str
    reason: str
    count: int
    newest: datetime
    job_id: str


@dataclass(frozen=True)
class WorkOverview:
    """How much there is to do and what was done since a moment; ``capped`` says that more was done than was looked at.

    ``pending`` are the jobs that wait for their turn, by platform and account.
    """

    any_job: bool
    open: Mapping[JobStatus, int]
    ended: Mapping[JobStatus, int]
    capped: bool
    oldest: Sequence[OldestJob]
    pending: Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class PageOrigin:
    """How a page was reached: over which name, and whether what was sent could be read on the way."""

    host: str
    secure: bool


@dataclass(frozen=True)
class ExposureWarning:
    """Something that is set so that others may get in, listen or spend, and the keys that mend it."""

    words: str
    keys: tuple[str, ...] = ()


def measure_answer_times(answers: Sequence[FirstAnswer], since: datetime) -> AnswerTimes:
    """Say how long the messages that came since then waited: half of them at most, and 95 of 100 at most."""
    took = sorted(one.took.total_seconds() * 1000 for one in answers if one.received_at >= since)
    return AnswerTimes(len(took), _nearest(took, 0.5), _nearest(took, 0.95))


def group_failures(failures: Sequence[FailureRecord]) -> Sequence[FailureKind]:
    """Put together the failures of one kind, the most frequent first; ``failures`` come newest first."""
    found: dict[tuple[str, str], list[FailureRecord]] = {}
    for one in failures:
        found.setdefault((one.error, pattern_of(one.reason)), []).append(one)
    kinds = (FailureKind(*kind, len(same), same[0].at, same[0].job_id) for kind, same in found.items())
    return sorted(kinds, key=lambda kind: kind.count, reverse=True)


def list_exposures(settings: Mapping[str, JsonValue], reached: PageOrigin) -> Iterator[ExposureWarning]:
    """Yield what is open to the world; ``settings`` are the values that hold, by key."""
    if not settings["webui.password"]:
        yield ExposureWarning(
            "No password is set: whoever reaches this port from this machine is the operator.", _PASSWORD
        )
    if not reached.secure and not is_local(reached.host):
        yield ExposureWarning(
            "This page comes over plain http from another machine, so the password can be read on the way. Put a proxy "
            "with a certificate in front, and name it.",
            ("webui.trustedProxies",),
        )
    # Who reaches the web connector has a ticket or a key: its own door is no way in for strangers.
    doors = tuple(key for key, value in settings.items() if _DOOR.fullmatch(key) and value == OPEN_DOOR)
    if doors:
        budget = "" if settings["budgets.dayUsd"] else ", and no budget ends it"
        yield ExposureWarning(
            f"Strangers who write a direct message are answered at your cost{budget}.", (*doors, *_BUDGET)
        )
    if settings["chat.enabled"] and not settings["chat.scanner.enabled"]:
        yield ExposureWarning("Secrets that agents post in #maestro are not taken out: the scanner is off.", _SCANNER)
    address = str(settings["temporal.address"])
    if address and not settings["temporal.tls"] and not is_local(address.rpartition(":")[0] or address):
        yield ExposureWarning("Temporal is on another machine and spoken to without TLS.", ("temporal.tls",))


def is_local(host: str) -> bool:
    """Say whether a host is this machine."""
    name = host.strip("[]").lower()
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name in LOCAL_NAMES or name.endswith(".localhost")


_DOOR = re.compile(r"connectors\..+\.dmPolicy")
_PASSWORD = ("webui.password",)
_BUDGET = ("budgets.dayUsd",)
_SCANNER = ("chat.scanner.enabled",)


def _nearest(ordered: Sequence[float], share: float) -> float | None:
    """Return the value that this share of all does not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
