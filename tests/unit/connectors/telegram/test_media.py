"""Fetching the files of messages."""

import asyncio
import logging
from pathlib import Path

import pytest

from connectors.base import PermanentFetch, RetryableFetch
from maestro.domain.messages import Attachment
from tests.support.telegram_bot import TelegramBot, telegram_bot
from tests.support.telegram_server import TOKEN, Fault, TelegramServer


async def test_a_file_is_fetched_by_its_id(bot: TelegramBot, tmp_path: Path) -> None:
    kept = bot.telegram.chats.keep("a.bin", b"content")
    path = await bot.connector.fetch(Attachment(id=kept.id), tmp_path)
    assert await asyncio.to_thread(path.read_bytes) == b"content"


async def test_the_token_in_a_files_address_is_told_to_nobody(
    bot: TelegramBot, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in ("httpx", "httpcore"):
        caplog.set_level(logging.WARNING, name)
    caplog.set_level(logging.CRITICAL, "telegram")  # as the product sets them up
    kept = bot.telegram.chats.keep("a.bin", b"x" * 2000)
    errors = []
    for fault in ("redirect", "gone"):
        folder = tmp_path / fault
        folder.mkdir()
        if fault == "redirect":
            kept.redirect = "http://10.0.0.1/secret"
        else:
            bot.telegram.fail("getFile", Fault.broken())
        with pytest.raises((PermanentFetch, RetryableFetch)) as raised:
            await bot.connector.fetch(Attachment(id=kept.id), folder)
        errors.append(repr(raised.value))
    assert TOKEN not in caplog.text + "".join(errors)


async def test_a_private_address_is_not_asked(telegram: TelegramServer, tmp_path: Path) -> None:
    kept = telegram.chats.keep("a.bin", b"x", redirect="http://10.0.0.1/inside")
    async with telegram_bot(telegram, start=False) as bot:
        with pytest.raises(PermanentFetch, match="not one of the hosts"):
            await bot.connector.fetch(Attachment(id=kept.id), tmp_path)


async def test_only_the_hosts_of_the_settings_are_asked(telegram: TelegramServer, tmp_path: Path) -> None:
    kept = telegram.chats.keep("a.bin", b"x")
    async with telegram_bot(telegram, start=False, media_hosts=()) as bot:
        with pytest.raises(PermanentFetch, match="not one of the hosts"):
            await bot.connector.fetch(Attachment(id=kept.id), tmp_path)
    assert telegram.downloads == []


async def test_what_is_too_large_is_not_asked_for(bot: TelegramBot, tmp_path: Path) -> None:
    with pytest.raises(PermanentFetch, match="maxMediaBytes"):
        await bot.connector.fetch(Attachment(id="x", size=200 * 1024**2), tmp_path)
    assert bot.telegram.called("getFile") == []


async def test_what_telegram_gives_no_bot_is_said_in_a_sentence(telegram: TelegramServer, tmp_path: Path) -> None:
    kept = telegram.chats.keep("a.bin", b"x", size=21 * 1000**2)
    async with telegram_bot(telegram, start=False) as bot:
        with pytest.raises(PermanentFetch, match="larger than 20 MB"):
            await bot.connector.fetch(Attachment(id=kept.id), tmp_path)


async def test_telegrams_own_server_is_not_asked_for_more_than_it_gives(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    async with telegram_bot(telegram, start=False, base_url="") as bot:
        with pytest.raises(PermanentFetch, match="the limit of Telegram for bots is 20,000,000"):
            await bot.connector.fetch(Attachment(id="x", size=21 * 1000**2), tmp_path)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.limited(3), RetryableFetch),
        (Fault.broken(), RetryableFetch),
        (Fault.cut_before(), RetryableFetch),
        (Fault.refused("Bad Request: wrong file_id or the file is temporarily unavailable"), PermanentFetch),
        (Fault.refused("Unauthorized", 401), PermanentFetch),
    ],
)
async def test_each_trouble_has_its_class(
    bot: TelegramBot, tmp_path: Path, fault: Fault, kind: type[Exception]
) -> None:
    bot.telegram.fail("getFile", fault)
    kept = bot.telegram.chats.keep("a.bin", b"x")
    with pytest.raises(kind):
        await bot.connector.fetch(Attachment(id=kept.id), tmp_path)
