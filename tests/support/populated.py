"""A Maestro with something on every page of its dashboard, all made by the real system and hostile to browsers."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.instance import PATIENCE, Instance, running_instance
from tests.support.llm_server import Failure
from tests.support.ports import free_port

PASSWORD = "the operator's own"
VIEWER = "who only looks"
KEY = "a key that makes its holder a user"
PICTURES = "MAESTRO_TEST_SCREENSHOTS"
"""The environment variable with the folder for pictures of the pages; on them, people write harmless things."""
MARKUP = "" if PICTURES in os.environ else "<img src=x onerror=\"document.title='broken'\">\"'`"
HOSTILE = MARKUP and MARKUP + "${7*7}{{7*7}}"
"""What breaks a page that does not escape: markup, both quotes, and the marks of two kinds of templates."""
CHANNEL = "lobby"

AGENTS = [
    {"slug": "conductor", "role": "conductor"},
    {
        "slug": "ada",
        "name": f"Ada {HOSTILE}"[:64].strip(),
        "description": f"Knows numbers {HOSTILE}",
        "role": "assistant",
    },
]


@dataclass
class Populated:
    """One with its dashboard at ``home``, asked by the operator."""

    instance: Instance
    http: httpx.AsyncClient
    home: str

    async def make(self, path: str, /, **body: Any) -> dict[str, Any]:
        """Have the API make something."""
        answer = await self.http.post(f"/api{path}", json=body)
        assert answer.is_success, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def job(self, status: str) -> str:
        """Return the newest job of a status."""
        [row] = self.instance.query("SELECT id FROM queue WHERE status = ? ORDER BY created_at DESC LIMIT 1", status)
        return str(row["id"])


@asynccontextmanager
async def populated(folder: Path, **settings: Any) -> AsyncIterator[Populated]:
    """Run one, with jobs of every kind of end, and one of everything else that a page lists."""
    port = free_port()
    webui = {"enabled": True, "port": port, "password": PASSWORD, "viewerPassword": VIEWER}
    async with running_instance(folder, agents=AGENTS, webui=webui, web={"apiKey": KEY}, **settings) as instance:
        home = f"http://localhost:{port}"
        async with httpx.AsyncClient(base_url=home, auth=("maestro", PASSWORD), timeout=PATIENCE) as http:
            found = Populated(instance, http, home)
            await _furnish(found)
            await _talk(found)
            yield found


async def _furnish(at: Populated) -> None:
    where = {"platform": "web", "channel": CHANNEL}
    await at.make("/clients", name=f"Shop {HOSTILE}"[:60].strip())
    await at.make("/agents/ada/memory/facts", content=f"The shop opens at nine {HOSTILE}")
    await at.http.put("/api/agents/ada/memory/state/topic", json={"value": f"opening hours {HOSTILE}"})
    await at.make(
        "/schedules",
        kind="cron",
        agent="ada",
        name=f"News {HOSTILE}"[:60].strip(),
        schedule="0 9 * * 1-5",
        prompt=f"Tell the news {HOSTILE}",
        **where,
    )
    await at.make(
        "/webhooks",
        path="deploys",
        agent="ada",
        name=f"Deploys {MARKUP}"[:60].strip(),
        promptTemplate=f"What was deployed? {MARKUP}",
        **where,
    )
    await at.make("/chat", text=f"A plan {HOSTILE}")
    await at.make("/agents/ada/tokens", name=f"Desk {HOSTILE}"[:40].strip())
    await at.make("/bindings", agent="ada", platform="web", channel="den")


async def _talk(at: Populated) -> None:
    llm, maestro = at.instance.llm, at.instance
    inert = HOSTILE.replace("`", "")  # what stands between two of them is code, where tags are text
    remembering = (
        f"Here it is {inert} [MEMORY:user_preference] likes tea {inert} [/MEMORY] [STATE:mood] calm {inert} [/STATE]"
    )
    llm.script("remember", reply=remembering)
    llm.script("break it", failure=Failure.status(400))
    llm.script("reckon", calls=[("calculate", {"expression": "6*7"})], rounds=0)
    llm.script("ask me", calls=[("ask_question", {"question": f"Which one? {HOSTILE}"})], rounds=0)
    async with maestro.client(CHANNEL, user_name=f"Eve {HOSTILE}"[:60].strip(), api_key=KEY) as client:
        await client.ask(f"remember {HOSTILE}")
        await client.ask("reckon")
    async with maestro.client("broken", user_name="Bob", api_key=KEY) as client:
        await client.say(f"break it {HOSTILE}")
        await maestro.ended("broken", "failed")
    async with maestro.client("asking", user_name="Ann", api_key=KEY) as client:
        await client.say("ask me")
        await maestro.until("SELECT id FROM questions WHERE status = 'open'")
