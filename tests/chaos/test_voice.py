"""The process dies around a transcript: what is kept is not bought again, and the message is answered once."""

import asyncio

import pytest

from tests.support.crashing import is_armed
from tests.support.evidence import Evidence
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro
from tests.support.uploads import upload
from tests.support.web_client import web_client

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-voice")]

OGG = b"OggS\x00\x02 OpusHead and sound"

BOUGHT = {
    "before voice begins": 1,
    "after voice begins": 1,
    # The provider had the request, and nobody kept its answer: only here is it asked again.
    "before transcript": 2,
    "after transcript": 1,
    "before voice done": 1,
    "after voice done": 1,
    "before conversation done": 1,
    "after conversation done": 1,
}


@pytest.fixture
def spoken(maestro: Maestro, llm: LLMServer) -> str:
    words = "turn off the lights"
    llm.script(wire="transcription", reply=words)
    return words


@pytest.mark.parametrize("point", BOUGHT)
async def test_a_transcript_survives_a_crash(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, spoken: str, point: str
) -> None:
    client_id = point.replace(" ", "-")
    maestro.arm(point)
    crash = asyncio.create_task(maestro.crash_at(point))
    async with web_client(maestro.web_port, channelId=client_id) as client:
        voice = await upload(client, maestro.web_port, "voice.ogg", OGG)
        await client.say("@helper", client_id, [voice])
        await crash
    (job,) = await evidence.ended(client_id)
    assert not is_armed(maestro.data)
    assert job["status"] == "completed"
    assert len([request for request in llm.requests if request.wire == "transcription"]) == BOUGHT[point]
    assert [request.last_user for request in llm.requests if request.wire == "openai"] == [
        f'[Voice]: "{spoken}"\n@helper'
    ]
    assert evidence.user_rows(client_id) == (1, 1)
    rows = evidence.rows("SELECT state FROM usage_log WHERE job_id = ? AND purpose = 'voice' ORDER BY id", job["id"])
    cut_off = BOUGHT[point] - 1
    assert [row["state"] for row in rows] == ["interrupted"] * cut_off + ["answered"], "each request is in the books"
