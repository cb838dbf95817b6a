"""Readiness: it answers soon whatever the store does, and waits for connectors that are to listen."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.web import WebConfig, WebConnector
from maestro.connector_runtime.host import describe_closed_ports
from maestro.observability import health as readiness
from maestro.observability.health import NO_ANSWER, EngineHealth
from maestro.store.store import Store
from temporal.endpoint import Endpoint
from temporal.engine import Engine
from tests.support.fresh_store import fresh_store, path_of
from tests.support.instance import until
from tests.support.locking import locked
from tests.support.memory_context import MemoryContext
from tests.support.web_server import SIGNING_KEY, web_server

ENGINE = Engine(Endpoint("localhost:1", "default"), lambda _: None)


async def working() -> str:
    return ""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db")
    yield store
    store.close()


async def test_a_store_that_does_not_answer_is_told_soon_and_asked_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "STORE_SECONDS", 0.05)
    health = EngineHealth(store, ENGINE, working)
    with locked(path_of(store)):
        assert await health.store_problem() == NO_ANSWER
        asked = health._store_check
        assert await health.store_problem() == NO_ANSWER
        assert health._store_check is asked
    assert asked is not None
    await until(asked.done)
    assert await health.store_problem() is None


async def test_a_connector_with_a_port_is_waited_for(store: Store) -> None:
    connector = WebConnector(WebConfig(signing_key=SIGNING_KEY), MemoryContext())
    checks = await EngineHealth(store, ENGINE, working, lambda: describe_closed_ports([connector])).checks()
    assert (checks["store"], checks["connectors"]) == ("ok", "not listening yet: web")
    async with web_server() as web:
        checks = await EngineHealth(store, ENGINE, working, lambda: describe_closed_ports([web.connector])).checks()
        assert checks["connectors"] == "ok"
    assert "connectors" not in await EngineHealth(store, ENGINE, working).checks()
