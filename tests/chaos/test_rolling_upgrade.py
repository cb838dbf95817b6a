"""A release that replaces another one while people talk: nothing is lost, doubled, paid twice or failed, or late.

The next release has one workflow command and one migration more. Its processes run beside those of this one.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import Client

from temporal.client import connect
from temporal.deployments import build_name
from temporal.dispatcher import TASK_TIMEOUT
from temporal.endpoint import Endpoint
from tests.chaos.conftest import HELPER
from tests.chaos.promise import assert_answered_once, assert_in_order
from tests.support.chatting import Person, person
from tests.support.evidence import Evidence
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.next_release import NEXT, NUMBER, ReleasePart, copy_next_release
from tests.support.ports import free_port
from tests.support.separate import FAST, READY, Separate, TemporalApart

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("separate")]

LANES, EACH = 20, 5
"""A hundred messages in flight: each person says all of theirs at once, and a lane answers them one after the other."""
MODEL = 2.0
"""Seconds of a model call: long enough for the upgrade to happen within the calls of the hundred messages."""
LATE = 5.0
"""Seconds after its model call by which an answer has arrived, beyond what the same load took without an upgrade.

On a busy machine Maestro lengthens its timeouts by a factor, and so is this bound.
"""
JOBS = {"backoffBaseMinutes": 0.005, "reconcileSeconds": 600, "drainSeconds": 120}
"""The reconciler looks only at its start, or when a workflow has failed."""


@pytest_asyncio.fixture(loop_scope="module")
async def maestro(llm: LLMServer, tmp_path: Path) -> AsyncIterator[Separate]:
    """Run this release beside a Temporal server that keeps up with a hundred messages."""
    started = Separate(tmp_path, llm, {"agents": [HELPER], "jobs": JOBS})
    started.temporal = TemporalApart(tmp_path, started.temporal.port, *FAST)
    try:
        await started.start()
        yield started
    finally:
        await started.end()


class Upgrade:
    """The processes of the next release beside those of this one."""

    def __init__(self, maestro: Separate, release: Path) -> None:
        self.maestro = maestro
        self._release = release
        self.worker = self.part("worker", "--health-port", str(free_port()))
        self.connect = self.part("connect", "web", "--health-port", str(free_port()))
        self.api = self.part("api")

    def part(self, *command: str) -> ReleasePart:
        store = self.maestro.data / "maestro.db"
        return ReleasePart(self._release, store, self.maestro.folder, "--config", str(self.maestro.config), *command)

    async def run(self, words: str, *command: str) -> None:
        """Run a command of the next release to its end, which says these words."""
        part = self.part(*command)
        await part.says(words, await part.begin())
        assert await part.end(signal.SIGCONT) == 0

    async def end(self) -> None:
        await asyncio.gather(*(part.end() for part in (self.worker, self.connect, self.api)))


async def delays(evidence: Evidence, client_ids: list[str]) -> list[float]:
    """Return for each message the seconds from the end of its model call until its answer had arrived."""
    late = []
    for job in await evidence.ended(*client_ids):
        (call,) = evidence.rows("SELECT finished_at FROM llm_calls WHERE job_id = ?", job["id"])
        bought, answered = (datetime.fromisoformat(str(at)) for at in (call["finished_at"], job["completed_at"]))
        late.append((answered - bought).total_seconds())
    return late


async def slowness(client: Client) -> float:
    """Return by which factor Maestro has lengthened the timeouts of workflow tasks, which it does on a busy machine."""
    longest = 1.0
    async for one in client.list_workflows():
        async for event in client.get_workflow_handle(one.id).fetch_history_events():
            if event.HasField("workflow_task_scheduled_event_attributes"):
                timeout = event.workflow_task_scheduled_event_attributes.start_to_close_timeout.ToTimedelta()
                longest = max(longest, timeout / TASK_TIMEOUT)
                break
    return longest


async def count(client: Client, query: str) -> int:
    return (await client.count_workflows(query)).count


async def talk(people: list[Person], name: str, each: int) -> dict[Person, list[str]]:
    """Let everybody say this many messages at once."""
    said = {one: [f"{one.channel}-{name}{number}." for number in range(each)] for one in people}
    for one, texts in said.items():
        for text in texts:
            await one.say(f"{text} please, @helper")
    return said


async def test_a_rolling_upgrade_loses_doubles_and_fails_nothing(
    maestro: Separate, llm: LLMServer, tmp_path: Path
) -> None:
    evidence = Evidence(maestro.data)
    client = await connect(Endpoint(f"127.0.0.1:{maestro.temporal.port}", "default"))
    upgrade = Upgrade(maestro, copy_next_release(tmp_path / "next"))
    llm.script(delay=MODEL, reply="so you say: {last}")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(upgrade.end)
        people = [await stack.enter_async_context(person(maestro.web_port, f"person-{n}")) for n in range(LANES)]
        before = await talk(people, "before", 1)
        usual = max(await delays(evidence, [text for texts in before.values() for text in texts]))
        # The tables change under working processes; then the new processes stand beside the old ones.
        await upgrade.run("from schema", "migrate")
        assert evidence.rows("SELECT version_num FROM alembic_version") == [{"version_num": NEXT}]
        waits = upgrade.connect.says("takes over after it", await upgrade.connect.begin())
        await asyncio.gather(waits, upgrade.worker.says(READY["worker"], await upgrade.worker.begin()))
        # A hundred messages are in flight while the next release takes over, process by process.
        said = await talk(people, "during", EACH)
        await until(lambda: len(llm.matching("during")) >= LANES, what="the first model calls")
        assert not [line for line in upgrade.worker.said if "New jobs" in line or "new jobs" in line], (
            upgrade.worker.said
        )
        await upgrade.run(f"New jobs begin with {NUMBER}-", "promote")
        assert await maestro.worker.end(signal.SIGTERM) == 0
        assert await maestro.connect.end(signal.SIGTERM) == 0
        await upgrade.connect.says(READY["connect"])
        assert await maestro.api.end(signal.SIGTERM) == 0
        await upgrade.api.says(READY["api"], await upgrade.api.begin())
        for one, texts in said.items():
            jobs = await evidence.ended(*texts)
            await one.acknowledged(*texts)
            await one.has(*(chunk["id"] for job in jobs for chunk in evidence.deliveries(job["id"])))
            for job, text in zip(jobs, texts, strict=True):
                assert_answered_once(evidence, one, job, text)
                assert (job["run"], job["recoveries"]) == (1, 0), "a workflow did not end with its release"
                assert len(llm.matching(text)) == 1, "an answer was paid for twice"
            assert_in_order(evidence, one, llm, [*before[one], *texts])
        late = await delays(evidence, [text for texts in said.values() for text in texts])
    assert max(late) <= (usual + LATE) * await slowness(client)
    assert await count(client, "ExecutionStatus != 'Completed'") == 0
    old = await count(client, f"TemporalWorkerDeploymentVersion = 'maestro:{build_name()}'")
    assert LANES < old < LANES * (EACH + 1), "both releases answered a part of the messages"
