"""The figures of the overview page: open work, answer times, failures and security warnings."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import JsonValue

from maestro.domain.errors import WaitReason
from maestro.domain.jobs.filters import FailedJob, error_pattern
from maestro.domain.jobs.job import JobStatus
from maestro.domain.network import LOCAL_NAMES, parse_address

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
_DM_POLICY_KEY = re.compile(r"connectors\..+\.dmPolicy")


@dataclass(frozen=True)
class OldestJob:
    """The pending job or the waiting job that has waited longest; ``waits_for`` is None for a pending job."""

    job_id: str
    since: datetime
    waits_for: WaitReason | None = None


@dataclass(frozen=True)
class AnswerTimes:
    """The median and the 95th percentile of the time to the first chunk of an answer, in milliseconds.

    ``count`` is the number of measured messages; if it is 0, both times are None.
    """

    count: int
    half_ms: float | None
    most_ms: float | None


@dataclass(frozen=True)
class FailureKind:
    """Failures of one kind: ``reason`` has ``*`` for the varying parts, ``job_id`` is the newest failed job."""

    error: str
    reason: str
    count: int
    newest: datetime
    job_id: str


@dataclass(frozen=True)
class WorkOverview:
    """The numbers of open jobs and of jobs that ended since a given time, by status.

    ``capped`` means that more jobs ended than were counted. ``pending`` has the number of pending jobs by platform and
    account.
    """

    any_job: bool
    open: Mapping[JobStatus, int]
    ended: Mapping[JobStatus, int]
    capped: bool
    oldest: Sequence[OldestJob]
    pending: Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class ExposureWarning:
    """A security warning on settings that let others log in, listen or spend; ``keys`` are the settings to change."""

    words: str
    keys: tuple[str, ...] = ()


def measure_answer_times(answers: Sequence[tuple[datetime, timedelta]], since: datetime) -> AnswerTimes:
    """Return the answer times of the messages received since a given time.

    ``answers`` has for each message when it was received, and the time until the first chunk of its answer was sent.
    """
    took = sorted(took.total_seconds() * 1000 for received_at, took in answers if received_at >= since)
    return AnswerTimes(len(took), nearest_percentile(took, 0.5), nearest_percentile(took, 0.95))


def group_failures(failures: Sequence[FailedJob]) -> Sequence[FailureKind]:
    """Return failures grouped by kind, the most frequent kind first; ``failures`` are given newest first."""
    groups: dict[tuple[str, str], list[FailedJob]] = {}
    for failure in failures:
        groups.setdefault((failure.error, error_pattern(failure.reason)), []).append(failure)
    kinds = (FailureKind(*kind, len(group), group[0].at, group[0].job_id) for kind, group in groups.items())
    return sorted(kinds, key=lambda kind: kind.count, reverse=True)


def list_exposures(settings: Mapping[str, JsonValue], host: str, *, secure: bool) -> Iterator[ExposureWarning]:
    """Yield the security warnings; ``settings`` are the current values by key.

    ``host`` is the name by which a browser reached the page, ``secure`` tells whether its connection is encrypted.
    """
    if not settings["webui.password"]:
        yield ExposureWarning(
            "No password is set: every user of this machine that reaches this port has operator rights.",
            ("webui.password",),
        )
    if not secure and not is_local(host):
        yield ExposureWarning(
            "This page is sent over plain HTTP, so others can read the password on the network. Put a proxy "
            "with a TLS certificate in front, and set its address.",
            ("webui.trustedProxies",),
        )
    # The pattern leaves out ``web.dmPolicy``: users of the web connector need a ticket or a key to connect.
    open_policies = tuple(key for key, value in settings.items() if _DM_POLICY_KEY.fullmatch(key) and value == "open")
    if open_policies:
        budget = "" if settings["budgets.dayUsd"] else ", and no budget limits this cost"
        yield ExposureWarning(
            f"Direct messages of unknown users are answered at your cost{budget}.", (*open_policies, "budgets.dayUsd")
        )
    if settings["chat.enabled"] and not settings["chat.scanner.enabled"]:
        yield ExposureWarning(
            "Secrets that agents post in #maestro are not redacted: the scanner is off.", ("chat.scanner.enabled",)
        )
    address = str(settings["temporal.address"])
    if address and not settings["temporal.tls"] and not is_local(address.rpartition(":")[0] or address):
        yield ExposureWarning("Temporal runs on another machine, and its connection has no TLS.", ("temporal.tls",))


def is_local(host: str) -> bool:
    """Return whether a host name or address means this machine."""
    name = host.strip("[]").lower()
    address = parse_address(name)
    return address.is_loopback if address is not None else name in LOCAL_NAMES or name.endswith(".localhost")


def nearest_percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the percentile ``share`` (0 to 1) of sorted values by nearest rank, None without values."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
