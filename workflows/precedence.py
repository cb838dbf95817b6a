"""How soon Temporal has work done: its own priorities and fairness (docs/decisions.md: priorities)."""

from temporalio import workflow
from temporalio.common import Priority

with workflow.unsafe.imports_passed_through():
    from maestro.domain.precedence import Precedence


def temporal_priority(precedence: Precedence | None, *, fair: bool) -> Priority:
    """Return what Temporal is told: ours are from 1 to 10, its own from 1 to 5.

    Nothing is told where nothing is known yet: then an activity goes as its workflow does.
    """
    if precedence is None:
        return Priority.default
    key = (precedence.priority + 1) // 2
    if not (fair and precedence.key):
        return Priority(priority_key=key)
    return Priority(priority_key=key, fairness_key=precedence.key, fairness_weight=precedence.weight)
