"""Runs that began before an update go on after it: today's code replays every recorded history."""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from temporal.client import DATA_CONVERTER
from temporal.engine import WORKFLOW_TYPES
from tests.histories.changed import CHANGED
from tests.histories.record import FOLDER, SCENARIOS

HISTORIES = sorted(FOLDER.glob("*.json"))
EARLIER = sorted((FOLDER / "earlier").glob("*.json"))


def history(path: Path) -> WorkflowHistory:
    """Read a recorded history; its workflow's id plays no part."""
    return WorkflowHistory.from_json(path.stem, path.read_text())


def replayer(workflows: tuple[type, ...]) -> Replayer:
    """Return a replayer with the whole sandbox on: stricter than a worker, which passes our modules through."""
    return Replayer(workflows=workflows, workflow_runner=SandboxedWorkflowRunner(), data_converter=DATA_CONVERTER)


def test_every_scenario_is_recorded() -> None:
    assert {path.stem for path in HISTORIES} == set(SCENARIOS), "run: python -m tests.histories.record"


@pytest.mark.parametrize("path", [*HISTORIES, *EARLIER], ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_todays_code_replays(path: Path) -> None:
    await replayer(WORKFLOW_TYPES).replay_workflow(history(path))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_changed_flow_is_noticed(path: Path) -> None:
    result = await replayer(CHANGED).replay_workflow(history(path), raise_on_replay_failure=False)
    assert "Nondeterminism" in str(result.replay_failure)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_recorded_history_says_nothing_of_the_machine(path: Path) -> None:
    assert "@" not in path.read_text().replace("1@worker", "")
