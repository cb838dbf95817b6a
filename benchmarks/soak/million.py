"""A million messages with retention on: the product's own transactions without pauses, under a simulated clock."""

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

from benchmarks.figures import Spread, median
from benchmarks.processes import MIB
from benchmarks.progress import ProgressBar
from benchmarks.results import Section, at_most, figure
from maestro.domain.messages import Address, IncomingMessage
from maestro.domain.settings.telemetry import RetentionSettings
from maestro.intake.messages import Intake, IntakeRules
from maestro.operations import retention
from maestro.operations.conversations import remove_discarded_files
from maestro.store.files import MediaFolder
from maestro.store.store import Store
from tests.support.database import query
from tests.support.doors import EVERYBODY
from tests.support.job_rows import Clock
from tests.support.store_writers import Worker, prepare

DAYS = 100
CONVERSATION = 10
"""Questions of a conversation; each has an answer."""
COMMIT_SIZE = 20
"""Questions of one commit: with fewer, the time would be that of the disk."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
RETENTION = RetentionSettings(calls_days=2, messages_days=7, jobs_days=8)
WARM_UP = 40
"""Days before the comparison: the inbox keeps the ids of messages for 30 days, and retention keeps jobs for 8."""
GROWTH = 400
"""The limit in bytes for a question after retention: its row in the log of usage, and its share of other rows."""
MS = 1000


@dataclass(frozen=True)
class Day:
    """The CPU time of a question, with its answer and with its deletion, on a simulated day; the store at its end."""

    cpu_ms: float
    deletion_ms: float
    file_mib: float


@dataclass(frozen=True)
class WritingTotals:
    """The messages that were written and those that retention left, its rounds of deletion, and the seconds it took."""

    messages: int
    left: int
    rounds: int
    seconds: float


class WritingStoppedError(Exception):
    """Raised when the writing is stopped before its end."""


def million(folder: Path, messages: int, stop_writing: threading.Event) -> tuple[Section, list[Day]]:
    """Write so many messages over the days, half questions and half answers; raises ``WritingStoppedError``."""
    path = folder / "million.db"
    began = time.perf_counter()
    clock = Clock(BEGIN)
    with closing(Store.open(path, clock)) as store, mock.patch.object(retention, "PAUSE_SECONDS", 0):
        store.process = "worker@soak:1"
        prepare(store)
        files = MediaFolder(folder / "media")
        service = retention.RetentionService(
            store, lambda: RETENTION, lambda: remove_discarded_files(store, folder, files)
        )
        days, rounds = [], 0
        count = messages // 2 // DAYS
        bar = ProgressBar(DAYS, "simulated days")
        for day in range(DAYS):
            cpu_ms = _write_day(store, clock, (day, count), stop_writing)
            deleting = time.thread_time()
            rounds += service.run_if_due()
            days.append(Day(cpu_ms, (time.thread_time() - deleting) / count * MS, _size(path) / MIB))
            bar.show(len(days))
        left = int(query(path, "SELECT count(*) AS n FROM messages")[0]["n"])
    return judge_days(days, WritingTotals(messages, left, rounds, time.perf_counter() - began)), days


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def _write_day(store: Store, clock: Clock, order: tuple[int, int], stop: threading.Event) -> float:
    """Accept and answer the questions of a day, ``order`` is its number and their count.

    Return the ms of CPU time for a question, by the median of the commits; raises ``WritingStoppedError``.
    """
    day, count = order
    rules = IntakeRules(10 * count, EVERYBODY)
    intake, worker, took = Intake(store, lambda: rules, lambda: None), Worker(store, None, "worker"), []
    for first in range(0, count, COMMIT_SIZE):
        if stop.is_set():
            raise WritingStoppedError
        began = time.thread_time()
        with store.begin():
            for number in range(first, min(first + COMMIT_SIZE, count)):
                clock.now = BEGIN + timedelta(days=day + number / count)
                worker.answer(intake.accept_message(_question(day, number, clock.now)).job_id)
        took.append((time.thread_time() - began) / COMMIT_SIZE)
    return Spread.of(took).p50 * MS


def _question(day: int, number: int, now: datetime) -> IncomingMessage:
    conversation = number // CONVERSATION
    return IncomingMessage(
        id=f"{day}-{number}",
        address=Address(platform="web", channel=f"day-{day}-{conversation}"),
        user_id=f"u-{conversation}",
        content=f"what is {number} plus 1",
        sent_at=now,
        is_direct=True,
    )


def judge_days(days: Sequence[Day], totals: WritingTotals) -> Section:
    """Compare the last third of the days after the warm-up with the first.

    CPU time is that of the quickest day of a third: other programs on the machine only add to it.
    """
    judged, messages = days[WARM_UP:], totals.messages
    third = len(judged) // 3
    first, last = judged[:third], judged[-third:]
    costs = [min(one.cpu_ms for one in some) for some in (first, last)]
    deletions = [min(one.deletion_ms for one in some) for some in (first, last)]
    grown = (median([one.file_mib for one in last]) - median([one.file_mib for one in first])) * MIB
    growth = grown / ((len(judged) - third) * (messages // 2 // DAYS))
    return Section(
        "million",
        f"{messages:,} messages with retention on",
        f"{messages // 2:,} questions and their answers in {DAYS} simulated days, {CONVERSATION} questions to a "
        "conversation, written by the intake and the transactions of the steps into SQLite, without model, platform "
        f"and Temporal, {COMMIT_SIZE} messages to a commit. Retention runs once a simulated day, without pauses for "
        f"other writers; it keeps calls for {RETENTION.calls_days} days, messages for "
        f"{RETENTION.messages_days}, jobs for {RETENTION.jobs_days}, and the ids of received messages for 30. After "
        f"{WARM_UP} days, the last third is compared with the first: the store by the median of its days, CPU time by "
        "the quickest day, because other load of the machine only adds to it. The log of usage and a row for each "
        "deleted conversation stay for good: that is the growth.",
        (
            figure("messages written", "", messages // 2 // DAYS * DAYS * 2),
            figure("messages left at the end", "", totals.left),
            figure("rounds of deletion", "", totals.rounds),
            figure("size of the store at the end", "MiB", days[-1].file_mib),
            figure("growth of the store for each question", "bytes", growth, at_most(GROWTH)),
            figure(
                "CPU of a question and its answer, median of all days", "ms", median([one.cpu_ms for one in judged])
            ),
            figure("CPU of a question and its answer, quickest day of the first and the last third", "ms", costs),
            figure("CPU of a question and its answer, change", "%", _percent(*costs), at_most(10)),
            figure("CPU of their deletion, median of all days", "ms", median([one.deletion_ms for one in judged])),
            figure("CPU of their deletion, quickest day of the first and the last third", "ms", deletions),
            figure("CPU of their deletion, change", "%", _percent(*deletions), at_most(10)),
            figure("took in all", "s", totals.seconds),
        ),
    )


def _percent(before: float, after: float) -> float:
    return (after / before - 1) * 100
