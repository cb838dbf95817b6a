"""Maestro is killed while it talks to WhatsApp: nothing is sent twice, and nothing that was said is lost."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.database import stored_text
from tests.support.evidence import Evidence, Row
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running
from tests.support.whatsapp_server import ACCESS_TOKEN, APP_SECRET, NUMBER_ID, VERIFY_TOKEN, Fault, WhatsAppServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-whatsapp")]

PARAGRAPH = "The quick brown fox jumps over the lazy dog. " * 80
LONG = "\n\n".join(f"{n}: {PARAGRAPH}" for n in range(4))
"""An answer of four chunks, in as many paragraphs."""
ACCEPTED, CHUNKS, UNKEPT, KEPT, DOWN = (f"49151000000{n:02d}" for n in range(5))
"""People, one for each test."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whatsapp() -> AsyncIterator[WhatsAppServer]:
    async with WhatsAppServer.running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(
    whatsapp: WhatsAppServer, llm: LLMServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Maestro]:
    """It logs all it can, so that a token in a line shows; what is in doubt waits long for a status."""
    secrets = {"accessToken": ACCESS_TOKEN, "appSecret": APP_SECRET, "verifyToken": VERIFY_TOKEN}
    local = {"baseUrl": whatsapp.base_url, "phoneNumberId": NUMBER_ID, "pairSeconds": 0, "statusSeconds": 60}
    async with running(
        tmp_path_factory.mktemp("maestro"),
        llm,
        agents=[{"slug": "chief", "role": "conductor"}],
        connectors={"whatsapp": {"enabled": True, "dmPolicy": "open", **secrets, **local}},
        logs={"level": "debug"},
    ) as started:
        whatsapp.postman.url = f"http://127.0.0.1:{started.web_port}/platforms/whatsapp/default"
        yield started


async def ended(evidence: Evidence, said: str) -> Row:
    """Return the one job of a message when it is completed."""
    sql = (
        "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE message_id = ? AND status = 'completed'"
    )
    await until(lambda: bool(evidence.rows(sql, said)))
    [job] = evidence.rows(sql, said)
    return job


def keys(whatsapp: WhatsAppServer, person: str) -> list[str]:
    """Return the key of every request to send a person something."""
    calls = [call.arguments for call in whatsapp.called("messages")]
    return [str(asked["biz_opaque_callback_data"]) for asked in calls if asked["to"] == person]


async def test_killed_after_whatsapp_has_it_and_before_we_know(
    maestro: Maestro, evidence: Evidence, whatsapp: WhatsAppServer
) -> None:
    """Its status, which nobody took meanwhile, comes again and settles it."""
    whatsapp.fail("messages", Fault.silence(stores=True))
    said = whatsapp.say(ACCEPTED, "please")
    [first] = await whatsapp.posts(ACCEPTED)
    await maestro.kill()
    await maestro.start()
    job = await ended(evidence, said)
    sent = whatsapp.sent(ACCEPTED)
    assert len(keys(whatsapp, ACCEPTED)) == len(sent) == len(set(keys(whatsapp, ACCEPTED)))
    rows = evidence.deliveries(job["id"])
    assert [(row["state"], row["platform_message_id"], row["repeats"]) for row in rows] == [
        ("sent", one["id"], 0) for one in sent
    ]
    assert sent[0] == first
    assert evidence.calls(job["id"])["answered"] == 1


async def test_killed_between_the_second_chunk_and_the_third(
    maestro: Maestro, evidence: Evidence, whatsapp: WhatsAppServer, llm: LLMServer
) -> None:
    llm.script(reply=LONG)
    whatsapp.fail("messages", Fault.silence(stores=True), skip=2)
    said = whatsapp.say(CHUNKS, "please")
    await whatsapp.posts(CHUNKS, 3)
    await maestro.kill()
    await maestro.start()
    job = await ended(evidence, said)
    assert len(keys(whatsapp, CHUNKS)) == len(set(keys(whatsapp, CHUNKS))) == len(evidence.deliveries(job["id"]))
    assert " ".join(whatsapp.texts(CHUNKS)).split() == LONG.split()
    assert evidence.calls(job["id"])["answered"] == 1


async def test_killed_before_a_message_is_kept(maestro: Maestro, evidence: Evidence, whatsapp: WhatsAppServer) -> None:
    """Meta posts it again, for nobody acknowledged it."""
    maestro.arm("before accept")
    said = whatsapp.say(UNKEPT, "are you there")
    await maestro.crash_at("before accept")
    job = await ended(evidence, said)
    assert len(whatsapp.sent(UNKEPT)) == len(evidence.deliveries(job["id"]))
    assert evidence.calls(job["id"])["answered"] == 1


async def test_killed_after_a_message_is_kept_and_before_it_is_acknowledged(
    maestro: Maestro, evidence: Evidence, whatsapp: WhatsAppServer
) -> None:
    """It comes twice and is one message."""
    maestro.arm("after accept")
    said = whatsapp.say(KEPT, "are you there")
    posting = whatsapp.postman.postings[-1]
    await maestro.crash_at("after accept")
    await whatsapp.taken(posting)
    job = await ended(evidence, said)
    assert len(posting.answers) > 1
    assert len(evidence.rows("SELECT * FROM inbox WHERE channel = ?", KEPT)) == 1
    assert len(evidence.deliveries(job["id"])) == len(whatsapp.sent(KEPT))
    assert evidence.calls(job["id"])["answered"] == 1


async def test_what_was_said_while_nobody_lived_is_answered(
    maestro: Maestro, evidence: Evidence, whatsapp: WhatsAppServer
) -> None:
    await ended(evidence, whatsapp.say(DOWN, "hello"))
    await maestro.kill()
    missed = whatsapp.say(DOWN, "are you there")
    await until(lambda: bool(whatsapp.postman.postings[-1].answers))
    await maestro.start()
    job = await ended(evidence, missed)
    assert evidence.calls(job["id"])["answered"] == 1


async def test_the_tokens_are_in_no_line_and_no_row(maestro: Maestro, evidence: Evidence) -> None:
    for text in (maestro.log.read_text(), "\n".join(maestro.said), stored_text(evidence.path)):
        for token in (ACCESS_TOKEN, APP_SECRET, VERIFY_TOKEN):
            assert token not in text
