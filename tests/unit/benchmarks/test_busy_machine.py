"""How the workflow tasks of a history ended."""

from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.api.history.v1 import HistoryEvent, WorkflowTaskTimedOutEventAttributes

from benchmarks.measure.busy_machine import task_ends


def timed_out(kind: TimeoutType.ValueType) -> HistoryEvent:
    return HistoryEvent(
        event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
        workflow_task_timed_out_event_attributes=WorkflowTaskTimedOutEventAttributes(timeout_type=kind),
    )


def test_every_workflow_task_of_a_history_has_an_end_or_is_open() -> None:
    scheduled = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED)
    completed = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
    sticky, other = TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START, TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
    history = [scheduled, timed_out(sticky), scheduled, timed_out(other), scheduled, completed, scheduled]
    assert task_ends(history) == ["sticky timeout", "timeout", "completed", "open"]
