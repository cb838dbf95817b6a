"""Voice messages become text that the model reads, are bought once, and never cost the answer."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from maestro.domain.jobs.replay import ReplayMode
from tests.support import uploads
from tests.support.history import history_of
from tests.support.instance import Instance, running_instance
from tests.support.llm_server import Failure, Recorded
from tests.support.uploads import tell
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("message-flow")]

OGG = b"OggS\x00\x02 OpusHead and sound"
SECOND = b"OggS\x00\x02 OpusHead and another sound"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(tmp_path_factory.mktemp("voice")) as instance:
        yield instance


@pytest.fixture(autouse=True)
def forgotten(maestro: Instance) -> None:
    maestro.llm.reset()


async def upload(client: WebClient, maestro: Instance, content: bytes) -> str:
    """Upload a recording as the client's user and return its id; its name says nothing of it."""
    assert maestro.taps.connector is not None
    return await uploads.upload(client, maestro.taps.connector.port, "memo.bin", content)


def heard(maestro: Instance) -> list[Recorded]:
    """Return the requests for a transcript."""
    return [request for request in maestro.llm.requests if request.wire == "transcription"]


def asked(maestro: Instance) -> list[str]:
    """Return what the model was told last in each request."""
    return [request.last_user for request in maestro.llm.requests if request.wire != "transcription"]


def usage(maestro: Instance, job_id: str) -> list[tuple[Any, ...]]:
    """Return what the books say of the transcriptions of a job."""
    sql = "SELECT * FROM usage_log WHERE job_id = ? AND purpose = 'voice' ORDER BY number, attempt"
    columns = ("number", "attempt", "state", "model", "account", "cost_usd", "error")
    return [tuple(row[column] for column in columns) for row in maestro.query(sql, job_id)]


async def test_the_model_reads_what_was_said(maestro: Instance) -> None:
    maestro.llm.script(wire="transcription", reply='Call "Bob" back.')
    async with maestro.client("spoken") as client:
        await tell(client, "please", await upload(client, maestro, OGG))
        await tell(client, "thanks")
    [request] = heard(maestro)
    assert (request.audio, request.model) == (OGG, "whisper-1")
    assert asked(maestro) == ['[Voice]: "Call \\"Bob\\" back."\nplease', "thanks"]
    job = (await maestro.ended("spoken", "completed", 2))[0]
    [stored] = maestro.query("SELECT * FROM messages WHERE inbox_id = ?", job["inbox_id"])
    assert stored["content"] == '[Voice]: "Call \\"Bob\\" back."\nplease'
    assert usage(maestro, job["id"]) == [(1, 1, "answered", "whisper-1", "main", None, "")]


async def test_a_message_of_nothing_but_voices_is_answered(maestro: Instance) -> None:
    maestro.llm.script(wire="transcription", reply="one", times=1)
    maestro.llm.script(wire="transcription", reply="two", times=1)
    async with maestro.client("only-voices") as client:
        await tell(client, "", *[await upload(client, maestro, sound) for sound in (OGG, SECOND)])
    assert [request.audio for request in heard(maestro)] == [OGG, SECOND]
    assert asked(maestro) == ['[Voice]: "two"\n[Voice]: "one"']


async def test_nothing_of_it_travels_through_temporal(maestro: Instance) -> None:
    maestro.llm.script(wire="transcription", reply="unspeakable words")
    async with maestro.client("quiet-voice") as client:
        await tell(client, "", await upload(client, maestro, OGG))
    [job] = await maestro.ended("quiet-voice", "completed")
    history = await history_of(maestro, job["id"])
    assert b"transcribe" in history
    assert b"unspeakable" not in history


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Failure.status(400), "BadRequest"),
        (Failure.status(500), "ProviderUnavailable"),
        (Failure.status(429, {"Retry-After": "1"}), "RateLimited"),
        (Failure.empty_body(), "ProviderUnavailable"),
    ],
)
async def test_what_cannot_be_transcribed_is_a_voice_message(maestro: Instance, failure: Failure, error: str) -> None:
    channel = f"{error}-{failure.kind}"
    maestro.llm.script(wire="transcription", failure=failure)
    async with maestro.client(channel) as client:
        await tell(client, "and this", await upload(client, maestro, OGG))
    assert asked(maestro) == ["[Voice message]\nand this"]
    [job] = await maestro.ended(channel, "completed")
    assert {entry[2:] for entry in usage(maestro, job["id"])} == {("failed", "whisper-1", "main", None, error)}
    assert len(usage(maestro, job["id"])) == len(heard(maestro))
    maestro.change("DELETE FROM account_limits")


async def test_a_restart_reads_what_was_heard(maestro: Instance) -> None:
    maestro.llm.script(wire="transcription", reply="heard already")
    async with maestro.client("voice-again") as client:
        await tell(client, "", await upload(client, maestro, OGG))
        [job] = await maestro.ended("voice-again", "completed")
        with maestro.operator() as operator:
            await operator.jobs.replay(job["id"], ReplayMode.RESTART, "a test")
        await client.wait_for("message", patience=30)
    assert len(heard(maestro)) == 1
    assert asked(maestro) == ['[Voice]: "heard already"'] * 2


async def test_a_stop_ends_the_listening(maestro: Instance) -> None:
    maestro.llm.script(wire="transcription", failure=Failure.silence())
    async with maestro.client("stopped-voice") as client:
        ack = await client.say("", attachments=[await upload(client, maestro, OGG)])
        assert ack["type"] == "ack", ack
        await maestro.asked("voice.ogg")
        await client.say("/stop")
        [job] = await maestro.ended("stopped-voice", "cancelled")
    assert asked(maestro) == []
    assert [entry[2] for entry in usage(maestro, job["id"])] == ["interrupted"]


@pytest.mark.parametrize("settings", [{"enabled": False}, {"provider": "groq"}], ids=["switched off", "no account"])
async def test_without_anybody_to_listen_it_is_a_voice_message(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with running_instance(tmp_path, llm={"transcription": settings}) as maestro:
        async with maestro.client("nobody") as client:
            await tell(client, "", await upload(client, maestro, OGG))
        assert heard(maestro) == []
        assert asked(maestro) == ["[Voice message]"]


async def test_a_file_that_takes_too_long_is_a_voice_message(tmp_path: Path) -> None:
    async with running_instance(tmp_path, llm={"transcription": {"maxSeconds": 1}}) as maestro:
        maestro.llm.script(wire="transcription", failure=Failure.silence())
        async with maestro.client("slow-voice") as client:
            await tell(client, "", await upload(client, maestro, OGG))
        assert asked(maestro) == ["[Voice message]"]


async def test_another_account_listens_when_the_first_is_limited(tmp_path: Path) -> None:
    async with running_instance(tmp_path, start=False) as maestro:
        shared = {"provider": "openai", "model": "gpt-4o-mini", "baseUrl": maestro.llm.base_url("openai")}
        accounts = [{"name": name, "apiKey": f"sk-{name}", **shared} for name in ("first", "second", "third")]
        await maestro.restart(llm={"accounts": accounts})
        maestro.llm.script(wire="transcription", reply="heard")
        maestro.llm.script(wire="transcription", account="first", failure=Failure.status(401))
        maestro.llm.script(wire="transcription", account="second", failure=Failure.status(429, {"Retry-After": "60"}))
        async with maestro.client("failover") as client:
            for text in ("one", "two"):
                await tell(client, text, await upload(client, maestro, OGG))
        assert [request.last_user for request in maestro.llm.requests if request.wire != "transcription"] == [
            '[Voice]: "heard"\none',
            '[Voice]: "heard"\ntwo',
        ]
        jobs = await maestro.ended("failover", "completed", 2)
        assert [(account, state) for _, _, state, _, account, *_ in usage(maestro, jobs[0]["id"])] == [
            ("first", "failed"),
            ("second", "failed"),
            ("third", "answered"),
        ]
        assert len(usage(maestro, jobs[1]["id"])) == 1
        [limit] = maestro.query("SELECT model FROM account_limits")
        assert limit["model"] == "whisper-1"
        assert maestro.query("SELECT status FROM accounts WHERE name = 'first'")[0]["status"] == "disabled"
