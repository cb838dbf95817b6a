"""What one plain message may cost, in exact counts: lower a limit when a change earns it, and never raise one."""

from pathlib import Path

from tests.support import postgresql
from tests.support.message_cost import Counts, counted_instance, files_text, statements_text
from tests.support.plans import explain

OF_SQLITE = {"commits": 5, "transactions": 6, "statements": 58, "reads of queue": 3, "files": 75}
OF_POSTGRESQL = {"files": 77}
"""Two files more, for round trips and for scopes; test_round_trips.py has the limits of its statements."""
LIMITS = {
    **(OF_POSTGRESQL if postgresql.wanted() else OF_SQLITE),
    "thread hops": 6,
    "workflow tasks": 2,
    "history events": 13,
    "billable actions": 4,
    "files of bootstrap": 0,
}
"""The most that the second message of a conversation may cost; a transaction counts with its BEGIN and COMMIT.

A message within a second of the first does not note again that its connector works, and may cost less.
"""
REPEATED = {"WORKFLOW_TASK_TIMED_OUT", "WORKFLOW_TASK_FAILED"}
"""What Temporal notes when it repeats a workflow task, because the process got no CPU for a second."""
SHOWN_BY = {"files": files_text, "files of bootstrap": files_text}
"""What shows where a count comes from; the statements do for all others."""


async def test_a_plain_message_costs_no_more_and_reads_no_table_that_grows(tmp_path: Path) -> None:
    async with counted_instance(tmp_path) as answer:
        counts = await answer()
        while REPEATED & set(counts.history):
            counts = await answer()
    assert not exceeded(counts), story(counts)
    if not postgresql.wanted():
        path = tmp_path / "data" / "maestro.db"
        plans = [explain(path, one.sql, [None] * one.sql.count("?")) for one in counts.statements]
        assert plans
        assert [plan for plan in plans if plan.reads_growing_table] == []


def exceeded(counts: Counts) -> list[str]:
    """Return the names of the counts above their limit."""
    return [name for name, limit in LIMITS.items() if counts.numbers[name] > limit]


def story(counts: Counts) -> str:
    """Return the table of limits, and the lists behind what exceeds them."""
    rows = [f"{counts.numbers[name]:5} of {limit:4} {name}" for name, limit in LIMITS.items()]
    lists = {SHOWN_BY.get(name, statements_text)(counts) for name in exceeded(counts)}
    return "\n".join([f"more than allowed: {', '.join(exceeded(counts))}", *rows, "", *sorted(lists)])
