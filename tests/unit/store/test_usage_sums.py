"""Usage added up: what is known, what is not, and what was cut off, each apart."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from maestro.domain.llm.usage import Period, UsageBy, UsageMark, UsageRequest, UsageSum
from tests.support.job_rows import MORNING, JobRows
from tests.support.usage_rows import answered, use

FIRST = MORNING.date()
SECOND = FIRST + timedelta(days=1)
BOTH = Period(FIRST, SECOND)


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    use(rows)
    yield rows
    rows.store.close()


def added(rows: JobRows, by: UsageBy, period: Period = BOTH) -> list[UsageSum]:
    with rows.store.view() as tx:
        return list(tx.llm.usage.list_sums(UsageRequest(by, period), 100))


def costs(rows: JobRows, by: UsageBy) -> list[tuple[str, float | None]]:
    return [(one.key, one.cost_usd) for one in added(rows, by)]


def test_days_come_newest_first_with_everything_that_is_known(rows: JobRows) -> None:
    assert added(rows, UsageBy.DAY) == [
        UsageSum(str(SECOND), 3, 1, 1, 150, 10, 60, 0.25, 1, 0.125),
        UsageSum(str(FIRST), 1, 0, 0, 100, 10, 60, 0.5, 0, None),
    ]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (UsageBy.AGENT, [("ada", 0.75), ("", None)]),
        (UsageBy.CLIENT, [("Acme", 0.5), ("", 0.25)]),
        (UsageBy.ACCOUNT, [("main", 0.75), ("spare", None)]),
        (UsageBy.MODEL, [("anthropic/claude-haiku-4-5", 0.75), ("anthropic/llama3", None)]),
        (UsageBy.CONVERSATION, [("", 0.75)]),
    ],
)
def test_anything_else_comes_the_dearest_first(by: UsageBy, expected: list[object], rows: JobRows) -> None:
    assert costs(rows, by) == expected


@pytest.mark.parametrize(("period", "calls"), [(Period(FIRST, FIRST), 1), (Period(SECOND, SECOND), 3)])
def test_only_the_days_that_are_asked_for_count(period: Period, calls: int, rows: JobRows) -> None:
    assert [one.calls for one in added(rows, UsageBy.DAY, period)] == [calls]


@pytest.mark.parametrize("by", list(UsageBy))
def test_pages_hold_everything_once(by: UsageBy, rows: JobRows) -> None:
    for _ in range(3):
        answered(rows, rows.add(), 0.5)  # several as dear as each other
    whole, after = added(rows, by), None
    seen: list[UsageSum] = []
    with rows.store.view() as tx:
        while page := tx.llm.usage.list_sums(UsageRequest(by, BOTH, after=after), 1):
            seen += page
            after = UsageMark(page[-1].key, page[-1].cost_usd or 0.0)
    assert seen == whole
