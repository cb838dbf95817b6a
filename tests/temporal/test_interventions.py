"""What people do to workflows behind Maestro's back: terminate, reset, delete the database.

See docs/invariants.md: resume, store is the truth.
"""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError

from maestro.domain.jobs.job import CANCELLED_NOTICE, FAILURE_NOTICE
from temporal.reconciler import RECOVERIES
from tests.histories.changed import BrokenWorkflow, ChangedWorkflow
from tests.support.histories import story
from tests.support.instance import Instance, running_instance, until
from tests.support.llm_server import Failure

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("interventions")]

LONG = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(tmp_path_factory.mktemp("interventions")) as instance:
        yield instance


def job_of(maestro: Instance, channel: str) -> str:
    """Return the id of a channel's first job."""
    return str(maestro.jobs(channel)[0]["id"])


def answered_once(maestro: Instance, channel: str, text: str) -> None:
    """Check that one answer was recorded, sent once, and bought once."""
    job = job_of(maestro, channel)
    assert len(maestro.query("SELECT 1 FROM messages WHERE job_id = ? AND role = 'user'", job)) == 1
    assert len(maestro.query("SELECT 1 FROM messages WHERE job_id = ? AND role = 'assistant'", job)) == 1
    assert len(maestro.query("SELECT 1 FROM llm_calls WHERE job_id = ? AND state = 'answered'", job)) == 1
    sent = [message.content for message in maestro.taps.sent if message.address.channel == channel]
    assert sent.count(f"answer to: {text}") == 1


async def reset(client: Client, workflow_id: str) -> None:
    """Reset a workflow to its first workflow task, as an operator may in the Web UI."""
    one = await story(client, workflow_id)
    first = next(event.event_id for event in one.events if event.HasField("workflow_task_completed_event_attributes"))
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace="default",
            workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=one.history.run_id),
            reason="by hand",
            workflow_task_finish_event_id=first,
            request_id=str(uuid.uuid4()),
        )
    )


# Terminate


async def test_a_terminated_workflow_closes_its_job_and_the_lane_goes_on(maestro: Instance) -> None:
    maestro.llm.script("cut short", delay=LONG, times=1)
    client = await maestro.temporal()
    async with maestro.client("terminated") as person:
        await person.say("cut short")
        await person.say("next in line")
        await maestro.asked("cut short")
        await client.get_workflow_handle(job_of(maestro, "terminated")).terminate("by hand")
        heard = {(await person.wait_for("message"))["content"] for _ in range(2)}
        assert heard == {CANCELLED_NOTICE, "answer to: next in line"}
    [job] = await maestro.ended("terminated", "cancelled")
    assert (job["error"], job["reason"]) == ("Terminated", "its workflow was terminated by a person")
    await until(lambda: maestro.llm.matching("cut short")[0].outcome == "gone", what="the end of the call")
    assert len(maestro.llm.matching("cut short")) == 1
    [call] = maestro.query("SELECT state FROM llm_calls WHERE job_id = ?", job["id"])
    assert call["state"] == "interrupted"


async def test_a_workflow_cancelled_in_temporal_closes_its_job(maestro: Instance) -> None:
    maestro.llm.script("called off", delay=LONG, times=1)
    client = await maestro.temporal()
    async with maestro.client("called-off") as person:
        await person.say("called off")
        await maestro.asked("called off")
        await client.get_workflow_handle(job_of(maestro, "called-off")).cancel()
        await maestro.ended("called-off", "cancelled")
        assert (await person.wait_for("message"))["content"] == CANCELLED_NOTICE
        assert await person.ask("and on") == "answer to: and on"


# Reset


async def test_a_reset_of_a_completed_job_doubles_nothing(maestro: Instance) -> None:
    client = await maestro.temporal()
    async with maestro.client("reset-completed") as person:
        await person.ask("done and dusted")
        await maestro.ended("reset-completed", "completed")
        job = job_of(maestro, "reset-completed")
        assert await client.get_workflow_handle(job).result() == "completed"
        await reset(client, job)
        assert await client.get_workflow_handle(job).result() == "completed"
        assert (await client.get_workflow_handle(job).describe()).status is WorkflowExecutionStatus.COMPLETED
        assert await person.ask("and then") == "answer to: and then"
    answered_once(maestro, "reset-completed", "done and dusted")
    assert len(maestro.llm.matching("done and dusted")) == 1


async def test_a_reset_of_a_running_job_doubles_nothing(maestro: Instance) -> None:
    maestro.llm.script("in the middle", delay=2)
    client = await maestro.temporal()
    async with maestro.client("reset-running") as person:
        await person.say("in the middle")
        await maestro.asked("in the middle")
        await reset(client, job_of(maestro, "reset-running"))
        assert (await person.wait_for("message", patience=30))["content"] == "answer to: in the middle"
        await maestro.ended("reset-running", "completed")
        assert await person.ask("what else") == "answer to: what else"
    answered_once(maestro, "reset-running", "in the middle")


async def test_a_reset_of_a_failed_job_leaves_it_failed(maestro: Instance) -> None:
    maestro.llm.script("beyond repair", failure=Failure.status(400), times=1)
    client = await maestro.temporal()
    async with maestro.client("reset-failed") as person:
        await person.ask("beyond repair")
        [job] = await maestro.ended("reset-failed", "failed")
        handle = client.get_workflow_handle(job["id"])
        for again in (False, True):
            if again:
                await reset(client, job["id"])
            with pytest.raises(WorkflowFailureError):
                await handle.result()
        assert await person.ask("anything else") == "answer to: anything else"
    assert len(maestro.llm.matching("beyond repair")) == 1
    assert [message.content for message in maestro.taps.sent].count(FAILURE_NOTICE) == 1
    [after] = maestro.query("SELECT * FROM queue WHERE id = ?", job["id"])
    assert dict(after) == dict(job)


# Delete


async def test_a_deleted_temporal_database_loses_no_message(tmp_path: Path) -> None:
    async with running_instance(tmp_path) as maestro:
        maestro.llm.script("half said", delay=LONG, times=1)
        async with maestro.client("wiped") as person:
            await person.say("half said")
            await person.say("not yet begun")
            await maestro.asked("half said")
        maestro.kill_temporal()
        await maestro.stop()
        for file in maestro.data_dir.glob("temporal.db*"):
            file.unlink()
        await maestro.start()
        jobs = await maestro.ended("wiped", "completed", 2)
    assert [job["run"] for job in jobs] == [2, 1]
    answered_once(maestro, "wiped", "half said")
    sent = [message.content for message in maestro.taps.sent]
    assert sent == ["answer to: half said", "answer to: not yet begun"]
    calls = maestro.query("SELECT state FROM llm_calls WHERE job_id = ? ORDER BY attempt", jobs[0]["id"])
    assert [call["state"] for call in calls] == ["interrupted", "answered"]


# Update


async def test_a_flow_that_no_longer_fits_gives_its_job_a_new_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_instance(tmp_path) as maestro:
        maestro.llm.script("caught", failure=Failure.status(503, {"retry-after": "2"}), times=1)
        async with maestro.client("updated") as person:
            await person.say("caught by an update")
            await person.say("after the update")
            await maestro.until("SELECT 1 FROM job_steps WHERE state = 'failed'")
        monkeypatch.setattr("temporal.engine.WORKFLOW_TYPES", (ChangedWorkflow,))
        await maestro.restart()
        jobs = await maestro.ended("updated", "completed", 2)
    assert [job["run"] for job in jobs] == [2, 1]
    assert [message.content for message in maestro.taps.sent] == [
        "answer to: caught by an update",
        "answer to: after the update",
    ]


async def test_a_flow_that_always_fails_ends_its_job_and_the_person_hears_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_instance(tmp_path, start=False, jobs={"reconcileSeconds": 0.1}) as maestro:
        with monkeypatch.context() as broken:
            broken.setattr("temporal.engine.WORKFLOW_TYPES", (BrokenWorkflow,))
            await maestro.start()
            async with maestro.client("broken") as person:
                await person.say("doomed")
                await maestro.until("SELECT 1 FROM queue WHERE status = 'running'")
                [failed] = await maestro.ended("broken", "failed")
        assert (failed["error"], failed["recoveries"]) == ("WorkflowEnded", RECOVERIES)
        await maestro.restart()
        await maestro.ended("broken", "completed")
    assert [message.content for message in maestro.taps.sent] == [FAILURE_NOTICE]
