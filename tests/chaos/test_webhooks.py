"""The process dies while it takes a delivery: the sender, who heard nothing, sends again, and there is one answer."""

import asyncio

import httpx
import pytest

from tests.chaos.promise import assert_books_closed, assert_delivered_once, assert_journal_closed
from tests.support.chatting import person
from tests.support.evidence import Evidence, Row
from tests.support.hooks import new_webhook, post, signature
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-webhooks")]

POINTS = {"before webhook": False, "after webhook": True}
"""Where the process dies, and whether the delivery is kept by then."""


async def ended(evidence: Evidence, channel: str) -> Row:
    """Return the first job of a channel once it is over."""
    sql = "SELECT * FROM queue WHERE channel = ? AND completed_at IS NOT NULL ORDER BY created_at"
    return (await evidence.found(sql, channel))[0]


@pytest.mark.parametrize(("point", "kept"), POINTS.items())
async def test_a_delivery_that_nobody_confirmed_is_answered_once(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, point: str, kept: bool
) -> None:
    channel = point.replace(" ", "-")
    body = f'{{"build": "{channel}", "state": "red"}}'.encode()
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{maestro.webui_port}", timeout=30) as http,
        person(maestro.web_port, channel) as somebody,
    ):
        await somebody.connected()
        made = await http.post("/api/webhooks", json=new_webhook(channel, agent="helper", channel=channel))
        assert made.status_code == 201, made.text
        maestro.arm(point)
        crash = asyncio.create_task(maestro.crash_at(point))
        with pytest.raises(httpx.TransportError):
            await post(http, body, signature(body, "d-1"), channel)
        await crash
        again = await post(http, body, signature(body, "d-1"), channel)
        assert (again.status_code, again.json()["duplicate"]) == (202, kept)
        job = await ended(evidence, channel)
        assert (job["id"], job["status"]) == (again.json()["jobId"], "completed")
        await somebody.has(*(chunk["id"] for chunk in evidence.deliveries(job["id"])))
        assert len(llm.matching(f"Build {channel} is red")) == 1
        assert_delivered_once(evidence, somebody, job, job["said"])
        assert_journal_closed(evidence, job)
        assert_books_closed(evidence, job)
    assert len(evidence.rows("SELECT id FROM queue WHERE channel = ?", channel)) == 1
