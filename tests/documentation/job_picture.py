"""Draws the page of a job for the README: ``python -m tests.documentation.job_picture``, with a Chromium."""

import asyncio
import os
import tempfile
from pathlib import Path

from playwright.async_api import async_playwright

from tests.support.instance import Instance, running_instance
from tests.support.llm_script import Failure
from tests.support.ports import free_port

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "job-page.png"
WIDTH = 1280
PASSWORD, KEY = "of the operator", "of the web client"
QUESTION = "How long does the rollout of 2.4.1 take, at 12 minutes for each of the 17 regions?"
ANSWER = "About 3 hours 24 minutes: 17 regions, one after the other, at 12 minutes each."
AGENT = {"slug": "release-manager", "tools": ["calculate"]}
BOUND = {"platform": "web", "channel": "releases", "agent": AGENT["slug"]}
MODELS = {"team": ("anthropic", "claude-sonnet-4-6"), "spare": ("openai", "gpt-4o")}


def accounts(maestro: Instance) -> list[dict[str, object]]:
    """Return two accounts, of which the second answers while the first is limited."""
    own = [(name, provider, model, maestro.llm.base_url(provider)) for name, (provider, model) in MODELS.items()]
    keys = ("name", "provider", "model", "baseUrl", "apiKey", "priority")
    return [dict(zip(keys, (*values, "key", number), strict=True)) for number, values in enumerate(own)]


async def draw(folder: Path) -> None:
    """Let an agent answer with a tool and another account, and write the picture of its job."""
    home = f"http://localhost:{(port := free_port())}"
    webui = {"enabled": True, "port": port, "password": PASSWORD}
    async with running_instance(
        folder, start=False, agents=[AGENT], channels=[BOUND], webui=webui, web={"apiKey": KEY}
    ) as maestro:
        await maestro.restart(llm={"accounts": accounts(maestro)})
        maestro.llm.script(match=QUESTION, reply=ANSWER, delay=1.2)
        maestro.llm.script(
            match=QUESTION, calls=(("calculate", '{"expression": "12 * 17 / 60"}'),), rounds=0, delay=1.6
        )
        maestro.llm.script(match=QUESTION, failure=Failure.limited(300), wire="anthropic")
        async with maestro.client("releases", user_name="Grace Hopper", api_key=KEY) as client:
            await client.ask(QUESTION)
        [job] = await maestro.until("SELECT id FROM queue WHERE status = 'completed'")
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=os.environ["MAESTRO_TEST_CHROMIUM"])
            page = await browser.new_page(locale="en-GB", timezone_id="UTC", color_scheme="light")
            await page.request.post(f"{home}/login", data={"password": PASSWORD})
            await page.set_viewport_size({"width": WIDTH, "height": 900})
            await page.goto(f"{home}/queue/{job['id']}")
            hidden = await page.evaluate("(({scrollHeight, clientHeight}) => scrollHeight - clientHeight)(main)")
            await page.set_viewport_size({"width": WIDTH, "height": 900 + hidden})
            await page.screenshot(path=PICTURE, animations="disabled")
            await browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(draw(Path(temporary)))
