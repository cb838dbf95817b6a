"""Messages that Telegram posts to us."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from connectors.base import ConnectorState
from connectors.webhooks import PlatformWebhooks
from maestro.domain.errors import StoreBusy
from tests.support.instance import until
from tests.support.memory_context import MemoryContext
from tests.support.telegram_bot import TelegramBot, telegram_bot
from tests.support.telegram_server import ADA, SECRET, TOKEN, Fault, TelegramServer
from tests.support.telegram_server.bots import FIRST_UPDATE

URL = "https://maestro.example/platforms/telegram/default"
HEADER = "X-Telegram-Bot-Api-Secret-Token"


@asynccontextmanager
async def hooked(
    telegram: TelegramServer, context: MemoryContext | None = None
) -> AsyncIterator[tuple[TelegramBot, httpx.AsyncClient]]:
    """Run a bot in webhook mode, and a client that posts to it."""
    async with telegram_bot(telegram, context, mode="webhook", webhook_url=URL) as bot:
        webhooks = PlatformWebhooks()
        app = Starlette()
        app.mount("/platforms", webhooks.router)
        transport = httpx.ASGITransport(app=app)
        with webhooks.serve_connector(bot.connector):
            async with httpx.AsyncClient(transport=transport) as client:
                yield bot, client


def update(telegram: TelegramServer, text: str, number: int = 0) -> dict[str, Any]:
    return {"update_id": FIRST_UPDATE + number, "message": telegram.chats.write(ADA, ADA, text)}


async def test_telegram_is_told_where_to_post_what_and_with_which_secret(telegram: TelegramServer) -> None:
    async with hooked(telegram):
        one = telegram.bots[TOKEN]
        assert (one.url, one.secret, "callback_query" in one.allowed) == (URL, SECRET, True)
        assert telegram.called("getUpdates") == []


async def test_what_is_posted_is_stored_before_it_is_acknowledged(telegram: TelegramServer) -> None:
    async with hooked(telegram) as (bot, client):
        said = update(telegram, "hello")
        for _ in range(3):
            assert (await client.post(URL, json=said, headers={HEADER: SECRET})).status_code == 200
        assert [one.content for one in bot.context.inbox] == ["hello"]


@pytest.mark.parametrize("headers", [{}, {HEADER: "another"}, {HEADER: ""}, {HEADER: SECRET + "x"}])
async def test_who_does_not_know_the_secret_is_refused(telegram: TelegramServer, headers: dict[str, str]) -> None:
    async with hooked(telegram) as (bot, client):
        answer = await client.post(URL, json=update(telegram, "forged"), headers=headers)
        assert (answer.status_code, bot.context.inbox) == (401, [])


async def test_the_body_of_a_stranger_is_not_read(telegram: TelegramServer) -> None:
    async with hooked(telegram) as (_, client):
        answer = await client.post(URL, content=b" " * (1024 * 1024 + 1), headers={HEADER: "another"})
        assert answer.status_code == 401, "a body that is read is too large, which is 413"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"no json", 400),
        (b"[" * 100_000, 400),
        (b"5", 400),
        (b"{}", 400),
        (b'{"update_id": "x"}', 400),
        (b'{"update_id": 1, "message": 5}', 200),
        (b'{"update_id": 1, "poll": {}}', 200),
        (b" " * (1024 * 1024 + 1), 413),
    ],
)
async def test_garbage_stores_nothing(telegram: TelegramServer, body: bytes, status: int) -> None:
    async with hooked(telegram) as (bot, client):
        answer = await client.post(URL, content=body, headers={HEADER: SECRET})
        assert (answer.status_code, bot.context.inbox) == (status, [])


async def test_what_is_not_stored_is_to_come_again(telegram: TelegramServer) -> None:
    context = MemoryContext(failure=StoreBusy("the database is locked"))
    async with hooked(telegram, context) as (_, client):
        said = json.dumps(update(telegram, "hello"))
        assert (await client.post(URL, content=said, headers={HEADER: SECRET})).status_code == 503
        context.failure = None
        assert (await client.post(URL, content=said, headers={HEADER: SECRET})).status_code == 200
        assert [one.content for one in context.inbox] == ["hello"]


async def test_before_we_know_who_we_are_nothing_is_taken(telegram: TelegramServer) -> None:
    async with telegram_bot(telegram, start=False, mode="webhook", webhook_url=URL) as bot:
        webhooks = PlatformWebhooks()
        with webhooks.serve_connector(bot.connector):
            app = Starlette()
            app.mount("/platforms", webhooks.router)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as client:
                answer = await client.post(URL, json=update(telegram, "early"), headers={HEADER: SECRET})
        assert answer.status_code == 503


async def test_a_webhook_that_somebody_changed_is_set_again(
    telegram: TelegramServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.telegram.updates.LOOK_SECONDS", 0.01)
    async with hooked(telegram):
        telegram.bots[TOKEN].url = "https://elsewhere.example"
        await until(lambda: telegram.bots[TOKEN].url == URL)


async def test_operators_hear_what_telegram_cannot_do_and_when_it_can_again(
    telegram: TelegramServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.telegram.updates.LOOK_SECONDS", 0.01)
    async with hooked(telegram) as (bot, _):
        one = telegram.bots[TOKEN]
        one.last_error, one.last_error_date = "Wrong response from the webhook: 502 Bad Gateway", 4_000_000_000
        assert "502 Bad Gateway" in await bot.told(ConnectorState.DEGRADED)
        # The good word may be there already: the next look is a hundredth of a second later.
        count = [state for state, _ in bot.context.states].index(ConnectorState.DEGRADED)
        await until(lambda: ConnectorState.RUNNING in dict(bot.context.states[count:]))


async def test_trouble_while_telling_telegram_is_overcome(telegram: TelegramServer) -> None:
    telegram.fail("setWebhook", Fault.broken())
    async with hooked(telegram) as (bot, _):
        await bot.told(ConnectorState.DEGRADED)
        assert telegram.bots[TOKEN].url == URL


async def test_in_polling_mode_there_is_nothing_to_post_to(bot: TelegramBot) -> None:
    assert not bot.connector.routes()
