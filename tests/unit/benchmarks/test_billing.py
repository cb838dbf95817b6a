"""Billable actions, counted from recorded histories by hand and by us."""

from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from benchmarks.billing import billable_actions

HISTORIES = Path(__file__).parents[2] / "histories"


def events_of(name: str) -> list[HistoryEvent]:
    """Return the events of a recorded history."""
    return list(WorkflowHistory.from_json(name, (HISTORIES / f"{name}.json").read_text()).events)


def test_an_answered_message_costs_its_start_an_activity_a_task_with_local_steps_and_the_upsert() -> None:
    assert billable_actions(events_of("answered")) == {
        "workflow started": 1,
        "activity attempts": 1,
        "workflow tasks with local activities": 1,
        "search attributes upserted": 1,
    }


def test_every_attempt_at_an_activity_counts() -> None:
    once, thrice = billable_actions(events_of("answered")), billable_actions(events_of("provider_retry"))
    assert thrice["activity attempts"] == once["activity attempts"] + 2


def test_a_timer_counts_and_so_does_every_workflow_task_with_local_steps() -> None:
    events = events_of("step_retry")
    timers = [event for event in events if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED]
    assert timers
    assert billable_actions(events)["timers"] == len(timers)


def test_what_did_not_happen_is_not_listed() -> None:
    assert "signals" not in billable_actions(events_of("dropped"))
