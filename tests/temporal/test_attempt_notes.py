"""The note of an attempt reaches the next attempts, although the process of the first one has died."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
NOTES = HeartbeatNotes()


@workflow.defn
class Noting:
    """Runs the activity."""

    @workflow.run
    async def run(self) -> Sequence[str]:
        """Repeat it until it succeeds, and return what its last attempt read."""
        found: Sequence[str] = await workflow.execute_activity(
            "noted",
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=timedelta(seconds=1),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10)),
        )
        return found


async def run(folder: Path, attempt: Callable[[int], Awaitable[None]]) -> Sequence[str]:
    """Let an activity make attempts, of which the third succeeds; return the note that this one reads."""

    @activity.defn
    async def noted() -> Sequence[str]:
        await attempt(activity.info().attempt)
        async with run_heartbeats():
            return NOTES.read()

    async with temporal_server(folder) as server:
        client = await connect(Endpoint(f"127.0.0.1:{port_of(server)}", "default"))
        runner = UnsandboxedWorkflowRunner()
        async with Worker(client, task_queue="q", workflows=[Noting], activities=[noted], workflow_runner=runner):
            found: Sequence[str] = await client.execute_workflow(Noting.run, id="noting", task_queue="q")
    return tuple(found)


async def test_each_later_attempt_reads_the_note_of_an_attempt_that_died(tmp_path: Path) -> None:
    async def attempt(number: int) -> None:
        if number == 1:
            async with run_heartbeats():
                assert NOTES.read() == ()
                await NOTES.leave(*NOTE)
            await asyncio.Event().wait()  # its heartbeats have ended
        if number == 2:
            async with run_heartbeats():
                assert NOTES.read() == NOTE
                await asyncio.sleep(0.5)  # heartbeats of this attempt do not remove the note
            raise RuntimeError("once more")

    assert await run(tmp_path, attempt) == NOTE


async def test_a_run_that_outlives_its_attempt_leaves_its_note_for_the_attempt_after_the_newest(tmp_path: Path) -> None:
    began, left = asyncio.Event(), asyncio.Event()

    async def attempt(number: int) -> None:
        if number == 1:
            async with run_heartbeats():
                pass
            await began.wait()
            await NOTES.leave(*NOTE)
            left.set()
            await asyncio.Event().wait()
        if number == 2:
            async with run_heartbeats():
                began.set()
                await left.wait()
                await asyncio.sleep(0.5)
            raise RuntimeError("once more")

    assert await run(tmp_path, attempt) == NOTE


async def test_a_note_outside_of_an_activity_is_none() -> None:
    await NOTES.leave("no activity")
    assert NOTES.read() == ()
