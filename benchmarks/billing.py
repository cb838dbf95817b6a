"""What a workflow costs in Temporal Cloud, counted from its history by the published rules.

The rules, from "Temporal Cloud Actions" in Temporal's documentation:

* a workflow started is one action, and a reset is one; the search attributes given at the start are free
* an activity is one action each time it is started or retried
* all markers of one workflow task, which is what local activities leave, are one action together
* a timer started is one, and so is a signal, an accepted update and one command that upserts search attributes
* a child workflow is two for its parent, besides what the child itself costs
* a heartbeat of an activity is one when it reaches the server; the SDK holds back those that come too soon

Heartbeats and queries are in no history and not counted; Maestro makes no queries of its own. Nor is what is billed by
namespace, such as fairness where it is enabled, and storage.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

ONE_EACH = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: "workflow started",
    EventType.EVENT_TYPE_TIMER_STARTED: "timers",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: "signals",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: "updates",
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES: "search attributes upserted",
}


def billable_actions(events: Sequence[HistoryEvent]) -> Counter[str]:
    """Return the number of actions of each kind in one workflow run, without heartbeats."""
    actions = Counter(ONE_EACH[event.event_type] for event in events if event.event_type in ONE_EACH)
    actions["activity attempts"] = sum(_attempts(events))
    actions["workflow tasks with local activities"] = len(_tasks_with_markers(events))
    children = EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED
    actions["child workflows"] = 2 * sum(event.event_type == children for event in events)
    return +actions


def _attempts(events: Iterable[HistoryEvent]) -> Iterable[int]:
    """Yield the attempts of each activity: only its last start is an event, and that names its number."""
    attempts: dict[int, int] = {}
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            attempts[event.event_id] = 1
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            started = event.activity_task_started_event_attributes
            attempts[started.scheduled_event_id] = started.attempt
    return attempts.values()


def _tasks_with_markers(events: Iterable[HistoryEvent]) -> set[int]:
    return {
        event.marker_recorded_event_attributes.workflow_task_completed_event_id
        for event in events
        if event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED
    }
