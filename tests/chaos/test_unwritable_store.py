"""A store that cannot be written, because its disk is full or another program holds its lock, costs no answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import pytest_asyncio

from maestro.domain.health import NOT_READY
from maestro.llm.middleware.replay import FOLDER
from tests.chaos.conftest import HELPER
from tests.chaos.promise import assert_answered_once
from tests.support.chatting import Person, person
from tests.support.crashing import lose_writer, set_lock_wait
from tests.support.evidence import Evidence
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.locking import cut_connections, locked
from tests.support.mounts import full_disk, small_disk
from tests.support.running import Maestro

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-unwritable-store")]

RESERVE = "maestro.db-reserve"
BUSY_SECONDS = 0.5
"""A sixtieth of what a store of the product waits for a lock, so that a lock of 45 s is one of less than a second."""
DISK_MEGABYTES = 48


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(llm: LLMServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Maestro]:
    """Maestro on a disk of its own."""
    maestro = Maestro(tmp_path_factory.mktemp("maestro"), llm, {"agents": [HELPER]})
    with small_disk(maestro.data, DISK_MEGABYTES):
        set_lock_wait(maestro.data, BUSY_SECONDS)
        try:
            await maestro.start()
            yield maestro
        finally:
            await maestro.end()


@asynccontextmanager
async def conversations(maestro: Maestro, llm: LLMServer, *said: str) -> AsyncIterator[dict[str, Person]]:
    """Let each of these messages be on its way to the model, which answers after ``llm.go_on``."""
    llm.script(reply="{last}: paid for", held=True)
    async with contextlib.AsyncExitStack() as talks:
        people = {one: await talks.enter_async_context(person(maestro.web_port, one)) for one in said}
        for client_id, somebody in people.items():
            await somebody.say(f"{client_id} please, @helper")
        await until(lambda: all(llm.matching(client_id) for client_id in said))
        yield people


def on_disk(maestro: Maestro, client_id: str) -> bool:
    """Tell whether the answer to a message is on the disk: in the database where the reserve makes room, or spooled."""
    evidence = Evidence(maestro.data)
    (job,) = evidence.jobs(client_id)
    return evidence.calls(job["id"])["answered"] == 1 or any((maestro.data / FOLDER).glob(f"{job['id']}.*.json"))


async def not_ready(maestro: Maestro) -> str:
    """Return what /readyz says of the store once it is not ready."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{maestro.webui_port}") as http:
        while True:
            answer = await http.get("/readyz", timeout=30)
            if answer.status_code == 503:
                assert answer.json()["status"] == NOT_READY
                return str(answer.json()["checks"]["store"])
            await asyncio.sleep(0.05)


async def assert_bought_once(maestro: Maestro, llm: LLMServer, people: dict[str, Person]) -> None:
    """Everybody has the answer, once, and the model was asked once for each."""
    evidence = Evidence(maestro.data)
    for client_id, somebody in people.items():
        (job,) = await evidence.ended(client_id)
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
        assert_answered_once(evidence, somebody, job, client_id)
        assert evidence.calls(job["id"]) == {"answered": 1}
        assert len(llm.matching(client_id)) == 1
    assert list((maestro.data / FOLDER).glob("*.json")) == []


@pytest.mark.parametrize("killed", [False, True], ids=["lives", "killed"])
async def test_a_lock_that_another_process_holds(maestro: Maestro, llm: LLMServer, killed: bool) -> None:
    async with conversations(maestro, llm, f"lock-{killed}.a", f"lock-{killed}.b") as people:
        with locked(maestro.data / "maestro.db"):
            llm.go_on()
            await until(lambda: len(list((maestro.data / FOLDER).glob("*.json"))) == len(people))
            assert "the store" in await not_ready(maestro)
            if killed:
                await maestro.kill()
        if killed:
            await maestro.start()
        await assert_bought_once(maestro, llm, people)


@pytest.mark.sqlite_only(reason="SQLite has one writing connection, PostgreSQL a pool")
async def test_the_one_connection_that_writes_is_lost(maestro: Maestro, llm: LLMServer) -> None:
    """As by a thread that was interrupted within the pool, inside a transaction; the next write replaces it."""
    async with conversations(maestro, llm, "lost.a", "lost.b") as people:
        lose_writer(maestro.data)
        llm.go_on()
        await assert_bought_once(maestro, llm, people)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{maestro.webui_port}") as http:
        assert "maestro_store_writers_replaced_total 1.0" in (await http.get("/metrics")).text
        assert (await http.get("/readyz", timeout=30)).status_code == 200


@pytest.mark.postgresql_only(reason="is about connections to a server")
async def test_the_server_ends_all_connections(maestro: Maestro, llm: LLMServer) -> None:
    async with conversations(maestro, llm, "cut.a", "cut.b") as people:
        cut_connections(maestro.data / "maestro.db")
        llm.go_on()
        await assert_bought_once(maestro, llm, people)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{maestro.webui_port}") as http:
        assert (await http.get("/readyz", timeout=30)).status_code == 200


@pytest.mark.sqlite_only(reason="is about the room for a file")
@pytest.mark.parametrize("killed", [False, True], ids=["lives", "killed"])
async def test_a_disk_that_fills(maestro: Maestro, llm: LLMServer, killed: bool) -> None:
    await until((maestro.data / RESERVE).exists)
    async with conversations(maestro, llm, f"full-{killed}.a", f"full-{killed}.b") as people:
        with full_disk(maestro.data):
            assert "Free some space" in await not_ready(maestro)
            llm.go_on()
            await until(lambda: not (maestro.data / RESERVE).exists())
            await until(lambda: all(on_disk(maestro, client_id) for client_id in people))
            if killed:
                await maestro.kill()
        if killed:
            await maestro.start()
        await assert_bought_once(maestro, llm, people)
