"""What the web connector says of itself when it begins."""

import asyncio
import socket

import pytest

from connectors.base import ConnectorState
from connectors.web import WebConfig, WebConnector
from maestro.domain.errors import PortTaken
from tests.support.memory_context import MemoryContext
from tests.support.web_server import SIGNING_KEY


async def test_why_the_port_cannot_be_had_is_on_record_before_anybody_hears_of_it() -> None:
    """Who hears of it ends the process."""

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
