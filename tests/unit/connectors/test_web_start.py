"""What the web connector reports when it begins, and what remains of a beginning that failed."""

import asyncio
import socket

import pytest

from connectors.base import ConnectorState
from connectors.web import WebConfig, WebConnector
from maestro.domain.errors import PortTaken, StoreBusy
from tests.support.instance import until
from tests.support.memory_context import MemoryContext
from tests.support.ports import free_port
from tests.support.web_server import SIGNING_KEY


async def test_why_the_port_cannot_be_had_is_on_record_before_anybody_hears_of_it() -> None:
    """The process ends as soon as it gets the error."""

    class Slow(MemoryContext):
        async def report(self, state: ConnectorState, detail: str = "") -> None:
            await asyncio.sleep(0)
            await super().report(state, detail)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, context = taken.getsockname()[1], Slow()
        connector = WebConnector(WebConfig(signing_key=SIGNING_KEY, port=port, local_owner=True), context)
        running = asyncio.create_task(connector.run())
        with pytest.raises(PortTaken) as told:
            await connector.wait_until_started()
        assert context.states[-1] == (ConnectorState.FAILED, str(told.value))
        await asyncio.gather(running, return_exceptions=True)


async def test_a_connector_that_could_not_report_its_start_can_open_its_port_again() -> None:
    """The process would end otherwise: its own first server would still have the port."""
    port, failures = free_port(), [StoreBusy("the database is locked")]

    class BusyAtFirst(MemoryContext):
        async def report(self, state: ConnectorState, detail: str = "") -> None:
            if state is ConnectorState.RUNNING and failures:
                # A client of the first server: it is asked to connect again.
                clients.append(await asyncio.open_connection("127.0.0.1", port))
                raise failures.pop()
            await super().report(state, detail)

    clients: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    context = BusyAtFirst()
    connector = WebConnector(WebConfig(signing_key=SIGNING_KEY, port=port, local_owner=True), context)
    with pytest.raises(StoreBusy):
        await connector.run()
    [(reader, writer)] = clients
    assert await reader.read() == b""
    writer.close()
    running = asyncio.create_task(connector.run())
    await until(lambda: context.states[-1] == (ConnectorState.RUNNING, f"port {port}"))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
