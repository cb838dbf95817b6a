"""Runs that began before an update go on after it: today's code replays every recorded history."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from temporal.engine import WORKFLOW_TYPES
from temporal.histories import find_files, read_file, read_files
from temporal.replay_check import (
    RecordedRun,
    ReplayCheck,
    ReplayReport,
    UnreadableHistory,
    WorkflowCommand,
    first_difference,
)
from tests.histories.changed import CHANGED, BrokenWorkflow, LongerWorkflow
from tests.histories.record import FOLDER, SCENARIOS

HISTORIES = sorted(FOLDER.glob("*.json"))
ANSWERED = FOLDER / "answered.json"
RUNNERS: Sequence[Callable[[], WorkflowRunner]] = (UnsandboxedWorkflowRunner, SandboxedWorkflowRunner)
"""That of a worker, and the whole sandbox, which is stricter and passes no module through."""


async def checked(*paths: Path, workflows: Sequence[type] = WORKFLOW_TYPES) -> ReplayReport:
    """Check files or folders as the command does."""
    return await ReplayCheck(workflows).replay(read_files(find_files(paths)))


def recorded(path: Path) -> RecordedRun:
    """Return the history in a file that can be read."""
    run = read_file(path)
    assert isinstance(run, RecordedRun)
    return run


def test_every_scenario_is_recorded() -> None:
    assert {path.stem for path in HISTORIES} == set(SCENARIOS), "run: python -m tests.histories.record"


@pytest.mark.parametrize("runner", RUNNERS)
async def test_todays_code_replays_every_recorded_history(runner: Callable[[], WorkflowRunner]) -> None:
    check = ReplayCheck(WORKFLOW_TYPES, runner=runner())
    files = find_files([FOLDER])
    report = await check.replay(read_files(files))
    assert report.broken == ()
    assert report.unreadable == ()
    assert sum(report.replayed.values()) == len(files)
    assert set(report.replayed) == {kind.__name__ for kind in WORKFLOW_TYPES}
    assert (report.ok, report.open_workflows) == (True, 0)


def beginnings(run: RecordedRun) -> list[RecordedRun]:
    """Return the history as it was after each commit of Temporal's, the last one left out."""
    events = run.history.events
    cuts = []
    for size in range(1, len(events)):
        following = events[size]
        about = getattr(following, following.WhichOneof("attributes") or "")
        if not getattr(about, "workflow_task_completed_event_id", 0):
            cuts.append(RecordedRun(WorkflowHistory(f"cut-{size}", events[:size]), run.run_id))
    return cuts


async def test_todays_code_replays_every_open_workflow() -> None:
    """A run may be open after any of its events."""

    async def cut() -> AsyncIterator[RecordedRun | UnreadableHistory]:
        for path in HISTORIES:
            for run in beginnings(recorded(path)):
                yield run

    report = await ReplayCheck(WORKFLOW_TYPES).replay(cut())
    assert report.broken == ()
    assert report.open_workflows > 200
    assert report.open_workflows == report.not_begun + sum(report.replayed.values())


# What breaks


async def test_a_changed_flow_is_refused_with_the_command_it_makes() -> None:
    report = await checked(*HISTORIES, workflows=CHANGED)
    assert not report.ok
    assert {broken.source for broken in report.broken} == {str(path) for path in HISTORIES}
    for broken in report.broken:
        assert broken.event_id == 5, broken
        assert broken.expected.startswith("LocalActivity "), broken
        assert broken.made == "StartTimer (1 s)", broken
        assert broken.reason.startswith("Nondeterminism"), broken


@pytest.mark.parametrize(
    ("workflow", "event", "expected", "made"),
    [
        (BrokenWorkflow, 5, "LocalActivity prepare (1)", "LocalActivity choose_agent (1)"),
        (LongerWorkflow, 13, "CompleteWorkflowExecution", "StartTimer (1 s)"),
    ],
)
async def test_the_first_other_command_is_named(workflow: type, event: int, expected: str, made: str) -> None:
    [broken] = (await checked(ANSWERED, workflows=[workflow])).broken
    assert (broken.event_id, broken.expected, broken.made) == (event, expected, made)
    assert broken.workflow_type == "MessageWorkflow"
    assert broken.workflow_id == recorded(ANSWERED).history.workflow_id
    assert not broken.is_open


async def test_a_workflow_type_that_is_gone_is_refused() -> None:
    [broken] = (await checked(ANSWERED, workflows=CHANGED[1:])).broken
    assert "MessageWorkflow is not registered" in broken.reason


async def test_a_run_that_an_earlier_release_failed_is_left_out(tmp_path: Path) -> None:
    document = json.loads(ANSWERED.read_text())
    document["events"][-1] = {
        **document["events"][-1],
        "eventType": "EVENT_TYPE_WORKFLOW_EXECUTION_FAILED",
        "workflowExecutionFailedEventAttributes": {"failure": {"message": "[TMPRL1100] Nondeterminism error: x"}},
    }
    del document["events"][-1]["workflowExecutionCompletedEventAttributes"]
    (tmp_path / "failed.json").write_text(json.dumps(document))
    report = await checked(tmp_path, workflows=CHANGED)
    assert (report.ok, report.failed_before, report.replayed) == (True, 1, {})


def command(kind: str, name: str = "") -> WorkflowCommand:
    return WorkflowCommand(kind, name)


LOCAL, TIMER, REMOTE = command("LocalActivity", "a"), command("StartTimer"), command("ScheduleActivityTask", "b")


@pytest.mark.parametrize(
    ("history", "made", "difference"),
    [
        ([LOCAL, REMOTE], [REMOTE, LOCAL], (None, None, None)),
        ([LOCAL, REMOTE], [LOCAL], (2, REMOTE, None)),
        ([LOCAL, REMOTE], [LOCAL, TIMER, REMOTE], (2, REMOTE, TIMER)),
        ([REMOTE, LOCAL], [LOCAL, TIMER], (1, REMOTE, TIMER)),
        ([REMOTE], [REMOTE, TIMER], (None, None, TIMER)),
        ([LOCAL], [], (1, LOCAL, None)),
    ],
)
def test_local_activities_may_end_in_any_order(
    history: list[WorkflowCommand], made: list[WorkflowCommand], difference: object
) -> None:
    assert first_difference(list(enumerate(history, start=1)), made) == difference


# Files


@pytest.mark.parametrize(
    "wrap", [lambda events: events, lambda events: {"events": events}, lambda events: {"history": {"events": events}}]
)
async def test_every_form_of_an_export_is_read(wrap: Callable[[Any], Any], tmp_path: Path) -> None:
    events = json.loads(ANSWERED.read_text())["events"]
    (tmp_path / "one.json").write_text(json.dumps(wrap(events)))
    report = await checked(tmp_path)
    assert (report.ok, report.replayed) == (True, {"MessageWorkflow": 1})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no history of a workflow"),
        ('{"name": "package"}', "no history of a workflow"),
        ('{"events": [{"eventId": "1"}]}', "the start of the workflow, is missing"),
        ('{"events": [5]}', "no history of a workflow"),
    ],
)
async def test_a_file_without_a_history_is_named(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_text(text)
    report = await checked(tmp_path)
    [unreadable] = report.unreadable
    assert (report.ok, unreadable.source) == (False, str(tmp_path / "wrong.json"))
    assert reason in unreadable.reason


async def test_an_export_with_decoded_payloads_is_refused(tmp_path: Path) -> None:
    document = json.loads(ANSWERED.read_text())
    document["events"][0]["workflowExecutionStartedEventAttributes"]["input"] = {"payloads": [{"jobId": "x"}]}
    (tmp_path / "decoded.json").write_text(json.dumps(document))
    [unreadable] = (await checked(tmp_path)).unreadable
    assert "without decoding" in unreadable.reason


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_recorded_history_says_nothing_of_the_machine(path: Path) -> None:
    assert "@" not in path.read_text().replace("1@worker", "")
