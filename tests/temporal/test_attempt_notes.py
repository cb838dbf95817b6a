"""The note of an attempt reaches the next attempt, although the process of the first one has died."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from temporal.attempts import HeartbeatNotes, run_heartbeats
from temporal.client import connect
from temporal.endpoint import Endpoint
from tests.support.temporal_gate import port_of, temporal_server

NOTE = ("job.answer.1", "one:/srv/maestro/answers")
read: list[Sequence[str]] = []


@activity.defn
async def noted() -> None:
    """Leave a note and lose the heartbeats, then fail without a note, then succeed."""
    attempt, notes = activity.info().attempt, HeartbeatNotes()
    async with run_heartbeats():
        read.append(notes.read())
        if attempt == 1:
            await notes.leave(*NOTE)
        else:
            await asyncio.sleep(0.5)  # heartbeats of this attempt do not remove the note
    if attempt == 1:
        await asyncio.Event().wait()
    if attempt == 2:
        raise RuntimeError("once more")


@workflow.defn
class Noting:
    """Runs the activity."""

    @workflow.run
    async def run(self) -> None:
        """Repeat it until it succeeds."""
        await workflow.execute_activity(
            noted,
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=timedelta(seconds=1),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10)),
        )


async def test_each_later_attempt_reads_the_note_of_an_attempt_that_died(tmp_path: Path) -> None:
    async with temporal_server(tmp_path) as server:
        client = await connect(Endpoint(f"127.0.0.1:{port_of(server)}", "default"))
        runner = UnsandboxedWorkflowRunner()
        async with Worker(client, task_queue="q", workflows=[Noting], activities=[noted], workflow_runner=runner):
            await client.execute_workflow(Noting.run, id="noting", task_queue="q")
    assert read == [(), NOTE, NOTE]


async def test_a_note_outside_of_an_activity_is_none() -> None:
    await HeartbeatNotes().leave("nobody")
    assert HeartbeatNotes().read() == ()
