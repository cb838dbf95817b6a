"""One of two workers stalls in a model call: the other takes the call over, and the stalled one buys nothing more."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.chaos.conftest import HELPER
from tests.chaos.promise import assert_answered_once
from tests.support.chatting import person
from tests.support.evidence import Evidence
from tests.support.instance import until
from tests.support.llm_script import Failure
from tests.support.llm_server import LLMServer
from tests.support.locking import is_writable
from tests.support.ports import free_port
from tests.support.separate import READY, Part, Separate, separate

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("separate")]

FIRST, SPARE = "key-of-the-first", "key-of-the-spare"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(llm: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Separate]:
    account = {"provider": "openai", "model": "gpt-4o-mini", "baseUrl": llm.base_url("openai")}
    accounts = [
        {**account, "name": "first", "apiKey": FIRST, "priority": 1},
        {**account, "name": "spare", "apiKey": SPARE, "priority": 2},
    ]
    folder = tmp_path_factory.mktemp("two-workers")
    async with separate(folder, llm, agents=[HELPER], llm={"accounts": accounts}) as started:
        yield started


@pytest.fixture
def evidence(maestro: Separate) -> Evidence:
    return Evidence(maestro.data)


async def stall(worker: Part, store: Path) -> None:
    """Stop a process where it stands, but not while it holds the store, which would stop everything."""
    worker.send_signal(signal.SIGSTOP)
    while not is_writable(store):
        worker.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.05)
        worker.send_signal(signal.SIGSTOP)


@contextlib.contextmanager
def going_on(worker: Part) -> Iterator[None]:
    """Let a process go on at the end, whatever happens."""
    try:
        yield
    finally:
        worker.send_signal(signal.SIGCONT)


async def test_a_stalled_worker_buys_nothing_beside_the_one_that_took_its_call_over(
    maestro: Separate, evidence: Evidence, llm: LLMServer
) -> None:
    said = "stalled."
    llm.script(said, delay=5, reply="once: {last}")
    llm.script(said, account=FIRST, times=1, delay=1.5, failure=Failure.status(500))
    second = maestro.another("worker", "--health-port", str(free_port()))
    try:
        async with person(maestro.web_port, "stalled") as somebody:
            await somebody.say(f"{said} please, @helper")
            await until(lambda: len(llm.matching(said)) == 1, what="the request of the first worker")
            with going_on(maestro.worker):
                await stall(maestro.worker, maestro.data / "maestro.db")
                await second.says(READY["worker"], await second.begin())
                await until(lambda: len(llm.matching(said)) == 2, what="the request of the second worker")
            # The first one hears of its failure now, while the second waits for its answer, and would ask the spare.
            (job,) = await evidence.ended(said)
            await somebody.answered(said)
            await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
            assert_answered_once(evidence, somebody, job, said)
            assert (job["run"], job["recoveries"]) == (1, 0)
    finally:
        await second.end()
    assert [request.key for request in llm.matching(said)] == [FIRST, FIRST]
    # The first one's request failed, the second one's was answered, and none of the two was taken for that of a dead.
    assert evidence.calls(job["id"]) == {"failed": 1, "answered": 1}
    attempts = [state for step, state in evidence.steps(job["id"]) if step == "model-1"]
    assert attempts == ["interrupted", "done"]
