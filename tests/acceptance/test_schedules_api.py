"""Schedules for people: the same rules on every way in, also while Temporal is away, and runs begun by hand."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from temporal.server import EmbeddedServer, ServerConfig
from tests.support.command import maestro as command
from tests.support.forking import Ended
from tests.support.instance import PATIENCE, Instance, running_instance
from tests.support.ports import free_port

pytestmark = pytest.mark.xdist_group("schedules-api")

AGENTS = [{"slug": "ada"}, {"slug": "boss", "role": "conductor"}]
WRONG = {
    "banana": "write it as every 15m",
    "61 * * * *": "the minute must be a number from 0 to 59",
    "every 10s": "an interval has at least 30 seconds",
    "every 0m": "an interval has at least 30 seconds",
    "0 0 9 * * *": "and no seconds",
}
"""What nobody can plan, and a part of the reason."""


@dataclass
class Maestro:
    """One whose Temporal server is away until it is started, and its operator."""

    instance: Instance
    server: EmbeddedServer
    http: httpx.AsyncClient
    folder: Path

    async def command(self, *words: str) -> Ended:
        """Run a command beside it."""
        return await command("schedules", *words, "--config", str(self.instance.config_file), folder=self.folder)

    async def post(self, path: str, **body: object) -> httpx.Response:
        """Ask the API for something."""
        return await self.http.post(f"/api/schedules{path}", json=body)


@pytest.fixture
async def maestro(tmp_path: Path) -> AsyncIterator[Maestro]:
    server = EmbeddedServer(ServerConfig(tmp_path / "elsewhere", free_port(), free_port()), report=lambda _: None)
    away, port = {"address": server.address, "heartbeatSeconds": 3}, free_port()
    webui = {"enabled": True, "port": port}
    async with running_instance(tmp_path, start=False, temporal=away, agents=AGENTS, webui=webui) as instance:
        await instance.start(ready=False)
        async with httpx.AsyncClient(base_url=f"http://localhost:{port}", timeout=PATIENCE) as http:
            yield Maestro(instance, server, http, tmp_path)
    await server.stop()


def new(schedule: str, **changes: Any) -> dict[str, Any]:
    """Return what makes a cron."""
    return {
        "kind": "cron",
        "agent": "ada",
        "schedule": schedule,
        "prompt": "Tell the news.",
        "platform": "web",
        "channel": "news",
        **changes,
    }


async def test_what_is_wrong_is_refused_everywhere_for_the_same_reason_and_the_rest_waits_for_temporal(
    maestro: Maestro,
) -> None:
    reasons = [await refused(maestro, schedule) for schedule in WRONG]
    assert [part in reason for part, reason in zip(WRONG.values(), reasons, strict=True)] == [True] * len(WRONG)
    assert (await maestro.http.get("/api/schedules")).json()["items"] == []

    made = await maestro.post("", **new("0 9 1 1 *", name="yearly"))
    assert (made.status_code, made.json()["nextRun"][4:]) == (201, "-01-01T09:00:00Z")
    told = await maestro.post("/preview", schedule="0 9 * * *", timezone="Europe/Amsterdam")
    assert [time[10:19] for time in told.json()["nextRuns"]] == ["T09:00:00"] * 5
    job_id = (await maestro.post("/cron-1/trigger")).json()["jobId"]
    twice = await maestro.post("/cron-1/trigger")
    assert (twice.status_code, job_id in twice.json()["message"]) == (409, True)

    maestro.instance.llm.script("Tell the news.", reply="All is well.")
    async with maestro.instance.client("news") as reader:
        await maestro.server.start()
        assert (await reader.wait_for("message"))["content"] == "All is well."
    (job,) = await maestro.instance.ended("news", "completed")
    assert (job["id"], job["kind"], job["schedule"], job["said"]) == (job_id, "cron", "cron-1", "All is well.")

    tags = [f"[CREATE_CRON]\nagent: ada\nschedule: {wrong}\nprompt: x\n[/CREATE_CRON]" for wrong in WRONG]
    good = "[CREATE_CRON]\nagent: ada\nname: tea\nschedule: in 300d\nprompt: Tea.\n[/CREATE_CRON]"
    maestro.instance.llm.script("plan it all", reply="\n".join([*tags, good]))
    async with maestro.instance.client("office") as owner:
        said = await owner.ask("plan it all")
    assert all(f"The cron was not created: {reason}." in said for reason in reasons), said
    assert "The cron “tea” of @ada was saved: in 300d (UTC). The next run is on " in said
    assert "the schedule is called cron-2." in said

    await made_up_for(maestro)


async def refused(maestro: Maestro, schedule: str) -> str:
    """Return the one reason for which a schedule is refused on every way in."""
    answers = [await maestro.post("", **new(schedule)), await maestro.post("/preview", schedule=schedule)]
    form = {**new(schedule), "timezone": "UTC", "csrf_token": ""}
    page = await maestro.http.post("/schedules", data=form)
    options = ("--agent", "ada", "--prompt", "x", "--channel", "news")
    ended = [
        await maestro.command("add", "cron", *options, "--when", schedule),
        await maestro.command("preview", schedule),
    ]
    assert {answer.status_code for answer in (*answers, page)} == {400}
    assert {one.code for one in ended} == {1}
    reasons: set[str] = {answer.json()["message"] for answer in answers}
    reasons |= {one.errors.removeprefix("maestro: ").strip() for one in ended}
    assert len(reasons) == 1
    assert reasons.copy().pop() in unescape(page.text)
    return reasons.pop()


async def made_up_for(maestro: Maestro) -> None:
    """Have times that passed made up for, one after the other."""
    now = datetime.now(UTC)
    await maestro.post("", **new("every 1h", name="hourly", channel="hours", prompt="What happened?"))
    stretch = {"from": (now - timedelta(hours=2, minutes=30)).isoformat(), "to": now.isoformat()}
    told = (await maestro.post("/cron-3/backfill", preview=True, **stretch)).json()
    begun = await maestro.post("/cron-3/backfill", **stretch)
    assert (begun.status_code, told["count"], begun.json()["times"]) == (202, 3, told["times"])
    jobs = await maestro.instance.ended("hours", "completed", 3)
    assert sorted(job["id"] for job in jobs) == [time["jobId"] for time in told["times"]]
    in_order = sorted(jobs, key=lambda job: str(job["slot"]))
    ends = [str(job["completed_at"]) for job in in_order]
    starts = [str(job["started_at"]) for job in in_order]
    assert all(start >= end for end, start in zip(ends, starts[1:], strict=False))
    assert (await maestro.post("/cron-3/backfill", **stretch)).json()["count"] == 0
