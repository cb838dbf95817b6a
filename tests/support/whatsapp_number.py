"""The WhatsApp connector beside a local WhatsApp, with no Maestro around it: Meta's requests reach its own routes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.routing import Mount

from connectors.base import ConnectorState
from connectors.options import Instance
from connectors.whatsapp.connector import WhatsAppConnector
from connectors.whatsapp.platform import ACCESS_TOKEN, APP_SECRET, VERIFY_TOKEN, WhatsAppOptions
from maestro.domain.messages import Address, OutgoingMessage
from tests.support import whatsapp_server
from tests.support.instance import until
from tests.support.listening import Listening
from tests.support.memory_context import MemoryContext
from tests.support.whatsapp_server import NUMBER_ID, WhatsAppServer

ADA, ZOE = "4915100000001", "4915100000002"
BASE = "/platforms/whatsapp/default"
FAST = {"pair_seconds": 0, "status_seconds": 0.3}


@dataclass
class OpenContext(MemoryContext):
    """A context in which everybody wrote a moment ago, unless ``opened`` is not so: then the inbox says when."""

    opened: bool = True

    async def last_heard(self, channel: str) -> datetime | None:
        """Return when."""
        return datetime.now(UTC) if self.opened else await super().last_heard(channel)


@dataclass
class WhatsAppNumber(Listening):
    """A connector, what it may ask of Maestro, and the WhatsApp it is connected to."""

    whatsapp: WhatsAppServer
    context: OpenContext
    connector: WhatsAppConnector
    http: httpx.AsyncClient
    """The way to the connector's routes, without a socket."""
    running: asyncio.Task[None] | None = field(default=None)

    async def start(self) -> None:
        """Let it run, and return when it takes in what is posted or has ended."""
        self.running = asyncio.create_task(self.connector.run())
        await until(lambda: ConnectorState.RUNNING in dict(self.context.states) or self._ended)

    @property
    def _ended(self) -> bool:
        return self.running is not None and self.running.done()

    def said(self, channel: str = ADA) -> list[str]:
        """Return what is in the inbox from a chat."""
        return [one.content for one in self.context.inbox if one.address.channel == channel]


def instance(whatsapp: WhatsAppServer, **options: Any) -> Instance:
    """Return an account at a local WhatsApp."""
    secrets = {
        ACCESS_TOKEN: whatsapp_server.ACCESS_TOKEN,
        APP_SECRET: whatsapp_server.APP_SECRET,
        VERIFY_TOKEN: whatsapp_server.VERIFY_TOKEN,
    }
    local = {"base_url": whatsapp.base_url, "media_hosts": ("127.0.0.1",), "phone_number_id": NUMBER_ID}
    found = WhatsAppOptions(**{**FAST, **local, **options})
    return Instance("default", {name: SecretStr(value) for name, value in secrets.items()}, found, "digest")


@asynccontextmanager
async def whatsapp_number(
    whatsapp: WhatsAppServer,
    context: OpenContext | None = None,
    *,
    start: bool = True,
    look_seconds: float = 300,
    **options: Any,
) -> AsyncIterator[WhatsAppNumber]:
    """Connect a number for the length of a block; Meta posts to it, and it listens when the block begins."""
    kept = context or OpenContext()
    made = instance(whatsapp, **options)
    assert isinstance(made.options, WhatsAppOptions)
    connector = WhatsAppConnector(made, kept, look_seconds=look_seconds)
    routes = Starlette(routes=[Mount(BASE, routes=list(connector.routes()))])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(routes), base_url="http://public.example") as http:
        number = WhatsAppNumber(whatsapp, kept, connector, http)
        meta, whatsapp.postman.http = whatsapp.postman.http, http
        whatsapp.postman.url = f"{BASE}/"
        try:
            if start:
                await number.start()
            yield number
        finally:
            await number.stop()
            whatsapp.postman.http, whatsapp.postman.url = meta, ""


def chunk(content: str, channel: str = ADA, number: int = 1, **extra: Any) -> OutgoingMessage:
    """Return a chunk on its way to a person."""
    address = Address(platform="whatsapp", account="default", channel=channel)
    return OutgoingMessage(id=number, address=address, content=content, key=f"key{number:021d}", **extra)


@asynccontextmanager
async def whatsapp_and_number(**options: Any) -> AsyncIterator[WhatsAppNumber]:
    """Run a local WhatsApp, to which Ada wrote a moment ago, and connect a number to it."""
    async with WhatsAppServer.running() as whatsapp:
        whatsapp.business.names[ADA] = "Ada"
        whatsapp.business.open(ADA)
        async with whatsapp_number(whatsapp, **options) as number:
            yield number
