"""Replays recorded histories against this code, and names the command at which a workflow goes another way."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent, MarkerRecordedEventAttributes
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter, DefaultFailureConverter
from temporalio.worker import (
    Replayer,
    UnsandboxedWorkflowRunner,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowReplayResult,
    WorkflowRunner,
)

from maestro.domain.values import View
from temporal.client import DATA_CONVERTER
from temporal.engine import FAILURE_TYPES
from temporal.sdk import NONDETERMINISM, ActivationExecutor

CLOSING_EVENTS = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
    }
)
_LOCAL_ACTIVITY, _PATCH = "LocalActivity", "Patch"
_UNORDERED = frozenset({_LOCAL_ACTIVITY, _PATCH})
"""Commands whose markers a history may hold in another order than the code made them."""


@dataclass(frozen=True)
class WorkflowCommand:
    """A command of a workflow, in the form in which a history and the code can be compared.

    ``name`` and ``key`` are what Temporal compares as well, such as the type and the id of an activity; ``about`` is
    for readers only.
    """

    kind: str
    name: str = ""
    key: str = ""
    about: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Return the command as one line, such as ``ScheduleActivityTask answer (model-1)``."""
        about = self.about or self.key
        return " ".join(filter(None, (self.kind, self.name, f"({about})" if about else "")))


class ReplayBreak(View):
    """A workflow that this code cannot continue, and the first command at which history and code differ."""

    source: str
    """The file of the history; empty for the cluster."""
    workflow_id: str
    run_id: str
    workflow_type: str
    is_open: bool
    event_id: int | None
    expected: str
    """The command in the history, empty if the history has none there."""
    made: str
    """The command of this code, empty if the code makes none there."""
    reason: str
    """Temporal's own words."""


class UnreadableHistory(View):
    """A history that cannot be read, and why."""

    source: str
    reason: str


class ReplayReport(View):
    """The outcome of a check: what was replayed, what was left out, and what breaks."""

    ok: bool
    replayed: Mapping[str, int]
    """The number of histories replayed, by workflow type."""
    open_workflows: int
    not_begun: int
    """Workflows without a finished workflow task: their code has made no command yet."""
    failed_before: int
    """Workflows that an earlier release ended because its code went another way: their histories prove nothing."""
    broken: tuple[ReplayBreak, ...]
    unreadable: tuple[UnreadableHistory, ...]


@dataclass(frozen=True)
class RecordedRun:
    """The history of one workflow run, and the file in which it was found."""

    history: WorkflowHistory
    run_id: str
    source: str = ""

    @property
    def workflow_type(self) -> str:
        return self.history.events[0].workflow_execution_started_event_attributes.workflow_type.name

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended in this history."""
        return self.history.events[-1].event_type not in CLOSING_EVENTS

    @property
    def has_begun(self) -> bool:
        """Whether the history has commands to compare with."""
        return any(event.HasField("workflow_task_completed_event_attributes") for event in self.history.events)

    @property
    def has_failed_before(self) -> bool:
        """Whether the run ended because the code of an earlier release went another way than this history."""
        failure = self.history.events[-1].workflow_execution_failed_event_attributes.failure
        return failure.message.startswith(NONDETERMINISM)


class CommandRecorder(WorkflowRunner):
    """A workflow runner that records the commands of the workflow that it ran last.

    A fault in workflow code fails the workflow, as in a worker. Nondeterminism does not: the replay has to report it.
    """

    def __init__(self, inner: WorkflowRunner) -> None:
        self._inner = inner
        self.commands: list[WorkflowCommand] = []

    def prepare_workflow(self, defn: Any) -> None:
        """Prepare a workflow as the inner runner does."""
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return an instance of the inner runner that records its commands here."""
        self.commands = []
        failing = replace(det, worker_level_failure_exception_types=FAILURE_TYPES)
        return _RecordedInstance(self._inner.create_instance(failing), self.commands)


class _RecordedInstance(WorkflowInstance):
    """A workflow instance that adds the commands of each activation to a list."""

    def __init__(self, inner: WorkflowInstance, commands: list[WorkflowCommand]) -> None:
        self._inner = inner
        self._commands = commands

    def activate(self, act: Any) -> Any:
        completion = self._inner.activate(act)
        made = map(made_command, completion.successful.commands)
        self._commands += filter(None, made)
        return completion

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Any:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


class ReplayCheck:
    """Replays histories one after the other, and collects what breaks."""

    def __init__(
        self, workflows: Sequence[type], converter: DataConverter = DATA_CONVERTER, runner: WorkflowRunner | None = None
    ) -> None:
        # A worker hides the texts of errors from histories. Nothing of a replay gets into a history.
        self._converter = replace(converter, failure_converter_class=DefaultFailureConverter)
        self._workflows = workflows
        self._recorder = CommandRecorder(runner or UnsandboxedWorkflowRunner())
        self._replayed: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._broken: list[ReplayBreak] = []
        self._unreadable: list[UnreadableHistory] = []
        self._open = 0

    async def replay(
        self, runs: AsyncIterator[RecordedRun | UnreadableHistory], progress: Callable[[int], None] | None = None
    ) -> ReplayReport:
        """Replay all runs; ``progress`` is called with the number of histories so far."""
        current: list[RecordedRun] = []
        count = 0

        async def choose_histories() -> AsyncIterator[WorkflowHistory]:
            nonlocal count
            async for run in runs:
                count += 1
                if progress is not None:
                    progress(count)
                if isinstance(run, UnreadableHistory):
                    self._unreadable.append(run)
                elif self._is_replayable(run):
                    current[:] = [run]
                    yield run.history

        with ActivationExecutor() as activations:
            replayer = Replayer(
                workflows=self._workflows,
                workflow_runner=self._recorder,
                workflow_task_executor=activations,
                data_converter=self._converter,
            )
            async with replayer.workflow_replay_iterator(choose_histories()) as results:
                async for result in results:
                    self._judge(current[0], result)
        return self._report()

    def _is_replayable(self, run: RecordedRun) -> bool:
        self._open += run.is_open
        self._skipped["not_begun"] += not run.has_begun
        self._skipped["failed_before"] += run.has_failed_before
        return run.has_begun and not run.has_failed_before

    def _judge(self, run: RecordedRun, result: WorkflowReplayResult) -> None:
        self._replayed[run.workflow_type] += 1
        made, self._recorder.commands = self._recorder.commands, []
        if result.replay_failure is not None:
            self._broken.append(_describe_break(run, made, _temporal_words(result.replay_failure)))

    def _report(self) -> ReplayReport:
        return ReplayReport(
            ok=not (self._broken or self._unreadable),
            replayed=dict(sorted(self._replayed.items())),
            open_workflows=self._open,
            not_begun=self._skipped["not_begun"],
            failed_before=self._skipped["failed_before"],
            broken=tuple(self._broken),
            unreadable=tuple(self._unreadable),
        )


def _temporal_words(failure: BaseException) -> str:
    """Return the message inside the SDK's printed failure, without the SDK's mark of nondeterminism."""
    found = re.search(r'message: "((?:[^"\\]|\\.)*)"', str(failure))
    words = found[1].replace('\\"', '"').replace("\\n", " ") if found else str(failure)
    return " ".join(words.removeprefix(NONDETERMINISM).split())


def _describe_break(run: RecordedRun, made: Sequence[WorkflowCommand], reason: str) -> ReplayBreak:
    event_id, expected, instead = first_difference(list(recorded_commands(run.history.events)), made)
    if expected is None and (named := re.search(r"HistoryEvent\(id: (\d+), (\w+)\)", reason)):
        event_id, expected = int(named[1]), WorkflowCommand(named[2])
    return ReplayBreak(
        source=run.source,
        workflow_id=run.history.workflow_id,
        run_id=run.run_id,
        workflow_type=run.workflow_type,
        is_open=run.is_open,
        event_id=event_id,
        expected=str(expected or ""),
        made=str(instead or ""),
        reason=reason,
    )


def first_difference(
    recorded: Sequence[tuple[int, WorkflowCommand]], made: Sequence[WorkflowCommand]
) -> tuple[int | None, WorkflowCommand | None, WorkflowCommand | None]:
    """Return the first event that the code's commands do not match, its command, and the code's command instead.

    Commands have the order of the history, except markers: a local activity has its marker only when it has ended.
    """
    rest = list(made)
    for position, (event_id, expected) in enumerate(recorded):
        if expected.kind in _UNORDERED:
            matches = expected in rest
        else:
            matches = next((command for command in rest if command.kind not in _UNORDERED), None) == expected
        if not matches:
            later = [command for _, command in recorded[position:] if command.kind in _UNORDERED]
            return event_id, expected, next((command for command in rest if command not in later), None)
        rest.remove(expected)
    return None, None, rest[0] if rest else None


def recorded_commands(events: Sequence[HistoryEvent]) -> Iterator[tuple[int, WorkflowCommand]]:
    """Yield each command in a history, with the id of its event."""
    for event in events:
        about = getattr(event, event.WhichOneof("attributes") or "", None)
        if event.HasField("marker_recorded_event_attributes"):
            if marker := _read_marker(event.marker_recorded_event_attributes):
                yield event.event_id, marker
        elif kind := _KIND_OF_EVENT.get(event.event_type):
            yield event.event_id, _read_command(kind, about)


def made_command(command: Any) -> WorkflowCommand | None:
    """Return a command of the SDK, None for one that leaves no event in a history."""
    variant = command.WhichOneof("variant")
    kind = _KIND_OF_VARIANT.get(variant)
    return None if kind is None else _read_command(kind, getattr(command, variant))


def _read_command(kind: str, about: Any) -> WorkflowCommand:
    """Return a command from an event's attributes or from the SDK's command, whose fields have the same names."""
    match kind:
        case "ScheduleActivityTask":
            return WorkflowCommand(kind, _type_name(about.activity_type), about.activity_id)
        case "LocalActivity":
            return WorkflowCommand(kind, about.activity_type, str(about.seq))
        case "Patch":
            return WorkflowCommand(kind, about.patch_id)
        case "StartTimer":
            return WorkflowCommand(kind, about=f"{about.start_to_fire_timeout.ToTimedelta().total_seconds():g} s")
        case "StartChildWorkflowExecution":
            return WorkflowCommand(kind, _type_name(about.workflow_type), about.workflow_id)
        case "FailWorkflowExecution":
            error = about.failure.application_failure_info.type
            return WorkflowCommand(kind, about=": ".join(filter(None, (error, about.failure.message))))
        case _:
            return WorkflowCommand(kind)


def _type_name(kind: Any) -> str:
    """Return the name of an activity's or a workflow's type, which is a message in an event and a text elsewhere."""
    return str(getattr(kind, "name", kind))


def _read_marker(marker: MarkerRecordedEventAttributes) -> WorkflowCommand | None:
    """Return the command of a marker that the SDK wrote; its data are JSON in plain text even with a codec."""
    kind = _KIND_OF_MARKER.get(marker.marker_name)
    data = [json.loads(payload.data) for name in ("data", "patch-data") for payload in marker.details[name].payloads]
    if kind is None or not data:
        return None
    if kind == _PATCH:
        return WorkflowCommand(kind, data[0]["id"])
    return WorkflowCommand(kind, data[0]["activity_type"], str(data[0]["seq"]))


_KIND_OF_EVENT: Mapping[int, str] = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: "ScheduleActivityTask",
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED: "RequestCancelActivityTask",
    EventType.EVENT_TYPE_TIMER_STARTED: "StartTimer",
    EventType.EVENT_TYPE_TIMER_CANCELED: "CancelTimer",
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED: "StartChildWorkflowExecution",
    EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: "SignalExternalWorkflowExecution",
    EventType.EVENT_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: "RequestCancelExternalWorkflowExecution",
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES: "UpsertWorkflowSearchAttributes",
    EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED: "ModifyWorkflowProperties",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: "CompleteWorkflowExecution",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "FailWorkflowExecution",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "CancelWorkflowExecution",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: "ContinueAsNewWorkflowExecution",
}
_KIND_OF_MARKER: Mapping[str, str] = {"core_local_activity": _LOCAL_ACTIVITY, "core_patch": _PATCH}
_KIND_OF_VARIANT: Mapping[str, str] = {
    "schedule_activity": "ScheduleActivityTask",
    "request_cancel_activity": "RequestCancelActivityTask",
    "schedule_local_activity": _LOCAL_ACTIVITY,
    "set_patch_marker": _PATCH,
    "start_timer": "StartTimer",
    "cancel_timer": "CancelTimer",
    "start_child_workflow_execution": "StartChildWorkflowExecution",
    "signal_external_workflow_execution": "SignalExternalWorkflowExecution",
    "request_cancel_external_workflow_execution": "RequestCancelExternalWorkflowExecution",
    "upsert_workflow_search_attributes": "UpsertWorkflowSearchAttributes",
    "modify_workflow_properties": "ModifyWorkflowProperties",
    "complete_workflow_execution": "CompleteWorkflowExecution",
    "fail_workflow_execution": "FailWorkflowExecution",
    "cancel_workflow_execution": "CancelWorkflowExecution",
    "continue_as_new_workflow_execution": "ContinueAsNewWorkflowExecution",
}
