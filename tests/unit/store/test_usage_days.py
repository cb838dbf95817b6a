"""The sums of days: what the log adds up to, whatever is written, changed and taken back."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.llm.calls import CallState
from maestro.domain.llm.prompts import CallKey
from maestro.domain.llm.usage import (
    EVERY_SCOPE,
    VOICE,
    Period,
    UsageBy,
    UsageRequest,
    UsageRow,
    UsageScope,
    UsageSum,
    add_sums,
    sum_by_day,
    sum_by_key,
)
from maestro.store.llm.usage_sums import FINE
from tests.support.database import query
from tests.support.job_rows import MORNING, JobRows
from tests.support.usage_rows import answered, use

FIRST = MORNING.date()
SECOND = FIRST + timedelta(days=1)
BOTH = Period(FIRST, SECOND)
HAIKU = "anthropic/claude-haiku-4-5"


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    use(rows)
    yield rows
    rows.store.close()


def together(found: list[UsageSum]) -> UsageSum:
    """Add sums up in Python."""
    known = [one.cost_usd for one in found if one.cost_usd is not None]
    estimated = [one.interrupted_cost_usd for one in found if one.interrupted_cost_usd is not None]
    counts = ("calls", "failures", "interrupted", "input_tokens", "output_tokens", "cached_tokens", "unknown_cost")
    return UsageSum(
        key="",
        **{name: sum(getattr(one, name) for one in found) for name in counts},
        cost_usd=sum(known) if known else None,
        interrupted_cost_usd=sum(estimated) if estimated else None,
    )


def said_by_the_log(rows: JobRows, whose: UsageScope = EVERY_SCOPE) -> UsageSum:
    """Return what the rows of the log say, which are read for sums of jobs."""
    with rows.store.view() as tx:
        return together(list(tx.llm.usage.list_sums(UsageRequest(UsageBy.JOB, BOTH, whose), 100)))


def said_by_the_days(rows: JobRows, whose: UsageScope = EVERY_SCOPE) -> UsageSum:
    with rows.store.view() as tx:
        return tx.llm.usage.read_total(BOTH, whose)


def test_days_say_what_the_log_says(rows: JobRows) -> None:
    assert said_by_the_days(rows) == said_by_the_log(rows)
    assert said_by_the_days(rows).calls == 4


def test_a_row_that_is_taken_back_does_not_count(rows: JobRows) -> None:
    job_id = rows.add()
    before = said_by_the_days(rows)
    answered(rows, job_id, 0.125)
    assert said_by_the_days(rows).calls == before.calls + 1
    with rows.store.begin() as tx:
        assert tx.llm.usage.delete_attempt(CallKey(job_id=job_id, number=1), 1) == 0.125
    assert said_by_the_days(rows) == before


def test_nothing_is_left_of_a_day_whose_rows_are_all_taken_back(tmp_path: Path) -> None:
    rows = JobRows.at(tmp_path)
    job_id = rows.add()
    answered(rows, job_id, 0.5)
    with closing(rows.store), rows.store.begin() as tx:
        tx.llm.usage.delete_attempt(CallKey(job_id=job_id, number=1), 1)
    ((days,),) = query(tmp_path / "maestro.db", "SELECT count(*) FROM usage_days")
    assert days == 0


def test_a_transcription_counts_as_what_it_ended_as_on_the_day_of_its_end(rows: JobRows) -> None:
    job_id = rows.add()
    voice = UsageRow(
        at=rows.clock(), job_id=job_id, purpose=VOICE, number=1, attempt=0, provider="openai", model="whisper-1",
        account="main", state=CallState.INTERRUPTED, cost_usd=0.25,
    )  # fmt: skip
    with rows.store.begin() as tx:
        number = tx.llm.usage.add_request(voice)
    heard = UsageScope(purpose=VOICE)
    assert (said_by_the_days(rows, heard).interrupted, said_by_the_days(rows, heard).interrupted_cost_usd) == (1, 0.25)
    with rows.store.begin() as tx:
        tx.llm.usage.complete_request(number, CallState.ANSWERED, 900, "")
    assert (said_by_the_days(rows, heard).interrupted, said_by_the_days(rows, heard).cost_usd) == (0, 0.25)
    assert said_by_the_days(rows) == said_by_the_log(rows)


@pytest.mark.parametrize(
    ("whose", "calls"),
    [
        (UsageScope(agent="ada"), 3),
        (UsageScope(agent="nobody"), 0),
        (UsageScope(client="Acme"), 1),
        (UsageScope(account="spare"), 1),
        (UsageScope(model=HAIKU), 3),
        (UsageScope(model="claude-haiku-4-5"), 3),
        (UsageScope(purpose="answer"), 4),
        (UsageScope(purpose="summary"), 0),
        (UsageScope(platform="web"), 4),
        (UsageScope(platform="discord"), 0),
        (UsageScope(agent="ada", account="main", client="Acme"), 1),
    ],
    ids=str,
)
def test_filters_go_together_and_mean_the_same_in_the_log(whose: UsageScope, calls: int, rows: JobRows) -> None:
    assert said_by_the_days(rows, whose).calls == calls
    assert said_by_the_log(rows, whose) == said_by_the_days(rows, whose)


def test_the_cost_of_one_agent_by_day(rows: JobRows) -> None:
    with rows.store.view() as tx:
        found = tx.llm.usage.list_sums(UsageRequest(UsageBy.DAY, BOTH, UsageScope(agent="ada")), 10)
    assert [(one.key, one.calls, one.cost_usd) for one in found] == [(str(SECOND), 2, 0.25), (str(FIRST), 1, 0.5)]


@pytest.mark.parametrize(("by", "keys"), [(UsageBy.PURPOSE, ["answer"]), (UsageBy.PLATFORM, ["discord", "web"])])
def test_purpose_and_platform_are_told_apart(by: UsageBy, keys: list[str], rows: JobRows) -> None:
    answered(rows, rows.add(platform="discord"), 3)
    with rows.store.view() as tx:
        assert [one.key for one in tx.llm.usage.list_sums(UsageRequest(by, BOTH), 10)] == keys


def test_there_is_a_part_for_each_day_and_key(rows: JobRows) -> None:
    with rows.store.view() as tx:
        parts = tx.llm.usage.list_parts(UsageBy.ACCOUNT, BOTH)
    assert [(part.day, part.sum.key, part.sum.cost_usd) for part in parts] == [
        (str(FIRST), "main", 0.5),
        (str(SECOND), "main", 0.25),
        (str(SECOND), "spare", None),
    ]


@pytest.mark.parametrize("by", sorted(set(UsageBy) - FINE - {UsageBy.DAY}))
def test_parts_add_up_to_what_the_sums_say(rows: JobRows, by: UsageBy) -> None:
    with rows.store.view() as tx:
        parts, total = tx.llm.usage.list_parts(by, BOTH), tx.llm.usage.read_total(BOTH)
        by_days, by_keys = (tx.llm.usage.list_sums(UsageRequest(one, BOTH), 100) for one in (UsageBy.DAY, by))
    assert sum_by_day(parts) == by_days
    assert sum_by_key(parts) == by_keys
    assert add_sums("", (one.sum for one in parts)) == total
