"""People never wait for machines, and nobody waits for all of somebody else's messages.

See docs/decisions.md: priorities.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from maestro.domain.jobs.job import Job, JobKind
from maestro.domain.precedence import Priority
from tests.support.instance import Instance, running_instance, until
from tests.support.llm_server import Recorded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("priorities")]

KEY = "key-of-a-program"
FOR_EVER = 60.0
"""Seconds a model takes that nobody waits for."""
FLOOD = 16
AT_THE_GATE = (
    "SELECT count(*) AS n FROM job_steps s JOIN queue q ON q.id = s.job_id"
    " WHERE q.channel LIKE ? AND s.step = 'model-1' AND s.state = 'running' HAVING count(*) = ?"
)
"""The channels, and how many calls there have gone as far as they can without room at the model."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    settings: dict[str, Any] = {
        "clients": [{"name": "Heavy", "weight": 5}, {"name": "Light"}],
        "agents": [{"slug": "heavy", "client": "Heavy"}, {"slug": "light", "client": "Light"}],
        "jobs": {"backgroundConcurrency": 1},
        "llm": {"concurrency": 2, "reservedForPeople": 1},
        "web": {"apiKey": KEY},
    }
    async with running_instance(tmp_path_factory.mktemp("priorities"), **settings) as instance:
        yield instance


def others(held: Sequence[Recorded]) -> Iterator[int]:
    """Return the numbers of the flood that are not held at the model."""
    known = {int(request.last_user.split()[-1]) for request in held}
    return (number for number in range(FLOOD) if number not in known)


def add_heartbeats(maestro: Instance, agent: str, count: int) -> None:
    """Let so many jobs of an agent wait that no person began."""
    with maestro.operator() as operator, operator.store.begin() as tx:
        its = tx.agents.get_agent_by_slug(agent)
        for number in range(count):
            job = Job(
                id=f"heartbeat-{agent}-{number:04}",
                kind=JobKind.HEARTBEAT,
                priority=Priority.SCHEDULED,
                agent_id=its.id,
                client_id=its.client_id,
                task=f"work of {agent}, number {number}",
                platform="web",
                account="default",
                channel=f"machines-of-{agent}",
                created_at=tx.now,
            )
            tx.jobs.add(job)


async def test_a_person_waits_for_none_of_a_thousand_jobs_that_no_person_began(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "agents": [{"slug": "ada"}, {"slug": "conductor", "role": "conductor"}],
        "jobs": {"backgroundConcurrency": 3, "drainSeconds": 0},
        "llm": {"concurrency": 3, "reservedForPeople": 1},
    }
    async with running_instance(tmp_path, **settings) as maestro:
        maestro.llm.script("work of ada", delay=FOR_EVER)
        add_heartbeats(maestro, "ada", 1000)
        await maestro.asked("work of ada", 2)
        await maestro.until("SELECT count(*) AS n FROM queue WHERE started_at IS NOT NULL HAVING count(*) = 3")
        async with maestro.client("person") as client:
            assert await client.ask("hello", patience=30) == "answer to: hello"
        assert len(maestro.llm.matching("work of ada")) == 2, "a place at the model is kept for people"
        waiting = maestro.query("SELECT 1 FROM queue WHERE kind = 'heartbeat' AND status = 'pending'")
        assert len(waiting) == 997, "the others wait as rows, and not as workflows"


async def test_what_waits_in_the_background_begins_by_the_weights_of_clients(maestro: Instance) -> None:
    add_heartbeats(maestro, "light", 12)
    add_heartbeats(maestro, "heavy", 30)
    await until(lambda: len(maestro.llm.matching("work of")) >= 19, what="19 jobs of the background")
    # What was first in the queue had begun already when there was nobody else.
    first = Counter(request.last_user.split()[2] for request in maestro.llm.matching("work of")[1:19])
    assert first == {"heavy,": 15, "light,": 3}


async def test_a_flood_of_one_client_does_not_keep_another_waiting(maestro: Instance) -> None:
    maestro.llm.script("flood", delay=FOR_EVER)
    async with AsyncExitStack() as stack:
        for number in range(FLOOD):
            client = await stack.enter_async_context(maestro.client(f"light-{number}", api_key=KEY))
            await client.say(f"@light flood {number}")
        await maestro.until(AT_THE_GATE, "light-%", FLOOD)
        other = await stack.enter_async_context(maestro.client("heavy", api_key=KEY))
        await other.say("@heavy hello")
        await maestro.until(AT_THE_GATE, "heavy", 1)
        await maestro.asked("flood", 2)
        held = maestro.llm.matching("flood")
        assert len(held) == 2, "all others wait for room at the model"
        maestro.llm.script("flood")
        with maestro.operator() as operator:
            for text in (request.last_user for request in held):
                [job] = maestro.jobs(f"light-{text.split()[-1]}")
                await operator.jobs.cancel(job["id"], "operator")
        await other.wait_for("message", patience=30)
        await asyncio.gather(*(maestro.ended(f"light-{number}", "completed") for number in others(held)))
    after = [request.last_user for request in maestro.llm.requests if "@" in request.last_user][2:]
    assert len(after) == FLOOD - 1
    assert next(place for place, text in enumerate(after) if "hello" in text) < 4, "it has its turn at once"


async def test_each_step_goes_as_its_client_and_priority_say(maestro: Instance) -> None:
    async with maestro.client("steps", api_key=KEY) as client:
        await client.ask("@heavy what goes first?")
    [job] = await maestro.ended("steps", "completed")
    [heavy] = maestro.query("SELECT id FROM clients WHERE name = 'Heavy'")
    temporal = await maestro.temporal()
    history = await temporal.get_workflow_handle(job["id"]).fetch_history()
    started = history.events[0].workflow_execution_started_event_attributes.priority
    assert (started.priority_key, started.fairness_key.partition(":")[0]) == (3, "channel")
    steps = {
        event.activity_task_scheduled_event_attributes.activity_type.name: (
            event.activity_task_scheduled_event_attributes.priority
        )
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    }
    assert steps.keys() == {"answer"}
    told = {(step.priority_key, step.fairness_key, step.fairness_weight) for step in steps.values()}
    assert told == {(3, f"client:{heavy['id']}", 5)}
