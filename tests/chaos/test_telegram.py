"""Maestro is killed while it talks to Telegram: nothing that was said is lost, and what may be there twice is marked.

Telegram knows no key of a message and tells nobody what it has, so an answer whose send was cut short is sent again:
at most one is too many in each crash.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.database import stored_text
from tests.support.evidence import Evidence, Row
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running
from tests.support.telegram_server import ADA, TOKEN, Fault, TelegramServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-telegram")]

PARAGRAPH = "The quick brown fox jumps over the lazy dog. " * 80
LONG = "\n\n".join(f"{n}: {PARAGRAPH}" for n in range(4))
"""An answer of four chunks, in as many paragraphs."""
PNG = b"\x89PNG\r\n\x1a\n and pixels"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer.running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(
    telegram: TelegramServer, llm: LLMServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Maestro]:
    """It logs all it can, so that a token in a line shows."""
    local = {"baseUrl": telegram.root, "mediaHosts": ["127.0.0.1"], "paceSeconds": 0, "groupPaceSeconds": 0}
    async with running(
        tmp_path_factory.mktemp("maestro"),
        llm,
        agents=[{"slug": "helper"}],
        owner={"ids": [f"telegram:{ADA}"]},
        connectors={"telegram": {"enabled": True, "token": TOKEN, **local}},
        logs={"level": "debug"},
    ) as started:
        yield started


async def ended(evidence: Evidence, chat: int, number: int) -> Row:
    """Return the one job of a message when it is completed."""
    sql = (
        "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id "
        "WHERE inbox.channel = ? AND message_id = ? AND status = 'completed'"
    )
    await until(lambda: bool(evidence.rows(sql, str(chat), str(number))))
    [job] = evidence.rows(sql, str(chat), str(number))
    return job


def sends(telegram: TelegramServer, chat: int) -> list[str]:
    """Return the text of every request to send something to a chat."""
    calls = [call.arguments for call in telegram.called("sendMessage")]
    return [str(asked["text"]) for asked in calls if asked["chat_id"] == str(chat)]


async def test_killed_after_telegram_has_it_and_before_we_know(
    maestro: Maestro, evidence: Evidence, telegram: TelegramServer
) -> None:
    """As many are there as were sent, and the row of each tells which one may be there twice."""
    telegram.fail("sendMessage", Fault.silence(stores=True))
    said = await telegram.say(-301, ADA, "@helper please")
    await telegram.posts(-301)
    await maestro.kill()
    await maestro.start()
    job = await ended(evidence, -301, said)
    rows, texts = evidence.deliveries(job["id"]), telegram.texts(-301)
    assert [(row["state"], row["repeats"]) for row in rows] == [("sent", 1), *[("sent", 0)] * (len(rows) - 1)]
    assert len(texts) == len(rows) + 1
    assert texts[0] == texts[1]
    assert len(set(texts)) == len(rows)
    assert evidence.calls(job["id"])["answered"] == 1


async def test_killed_between_the_second_chunk_and_the_third(
    maestro: Maestro, evidence: Evidence, telegram: TelegramServer, llm: LLMServer
) -> None:
    """What has a receipt is not sent again; the third, of which nobody knows, is marked."""
    llm.script(reply=LONG)
    telegram.fail("sendMessage", Fault.silence(stores=False), skip=2)
    said = await telegram.say(-302, ADA, "@helper please")
    await until(lambda: len(sends(telegram, -302)) == 3)
    await maestro.kill()
    assert len(telegram.posted(-302)) == 2
    await maestro.start()
    job = await ended(evidence, -302, said)
    one, two, three, *others = sends(telegram, -302)
    assert others[0] == three
    assert {one, two}.isdisjoint(others)
    assert " ".join(telegram.texts(-302)).split() == LONG.split()
    assert [row["repeats"] for row in evidence.deliveries(job["id"])][:4] == [0, 0, 1, 0]
    assert evidence.calls(job["id"])["answered"] == 1


async def test_killed_before_a_message_is_kept(maestro: Maestro, evidence: Evidence, telegram: TelegramServer) -> None:
    """Telegram tells of it again, for nobody confirmed it."""
    maestro.arm("before accept")
    said = await telegram.say(-303, ADA, "@helper are you there")
    await maestro.crash_at("before accept")
    job = await ended(evidence, -303, said)
    assert len(evidence.deliveries(job["id"])) == len(telegram.posted(-303))


async def test_killed_after_a_message_is_kept_and_before_the_next_offset(
    maestro: Maestro, evidence: Evidence, telegram: TelegramServer
) -> None:
    """It comes twice and is one message, answered once."""
    maestro.arm("after accept")
    said = await telegram.say(-304, ADA, "@helper are you there")
    await maestro.crash_at("after accept")
    job = await ended(evidence, -304, said)
    bot = telegram.bots[TOKEN]
    await until(lambda: not bot.waiting)
    assert len(evidence.rows("SELECT * FROM inbox WHERE channel = '-304'")) == 1
    assert len(evidence.deliveries(job["id"])) == len(telegram.posted(-304))
    assert evidence.calls(job["id"])["answered"] == 1


async def test_killed_with_an_album_half_told(maestro: Maestro, evidence: Evidence, telegram: TelegramServer) -> None:
    """Nothing of an album is confirmed before all of it is kept."""
    maestro.arm("before accept")
    pictures = [telegram.chats.keep(f"{n}.png", PNG + bytes([n])) for n in range(3)]
    said = [
        await telegram.send_file(-305, ADA, "photo", one, media_group_id="5", caption="@helper look")
        for one in pictures
    ]
    await maestro.crash_at("before accept")
    await ended(evidence, -305, said[0])
    [row] = evidence.rows("SELECT * FROM inbox WHERE channel = '-305'")
    assert [one.id in row["attachments"] for one in pictures] == [True] * 3


async def test_the_token_is_in_no_line_and_no_row(
    maestro: Maestro, evidence: Evidence, telegram: TelegramServer
) -> None:
    """Files were fetched, from addresses that hold it, and sends, polls and downloads have failed."""
    telegram.fail("sendMessage", Fault.broken(), Fault.cut_before())
    telegram.fail("getUpdates", Fault.broken(), Fault.cut_before())
    telegram.fail("getFile", Fault.cut_before())
    inside = telegram.chats.keep("inside.png", PNG, redirect="https://10.0.0.1/inside.png")
    await telegram.send_file(-306, ADA, "photo", inside, caption="@helper look")
    picture = telegram.chats.keep("cat.png", PNG)
    await ended(evidence, -306, await telegram.send_file(-306, ADA, "photo", picture, caption="@helper look"))
    assert picture.path in telegram.downloads
    assert inside.path in telegram.downloads
    log = maestro.log.read_text()
    assert "telegram" in log
    for text in (log, "\n".join(maestro.said), stored_text(evidence.path)):
        assert TOKEN not in text
        assert TOKEN.partition(":")[2] not in text
