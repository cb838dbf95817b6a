"""Temporal's own Web UI shows encrypted payloads to a user who has logged in to the dashboard."""

import base64
import json
import os
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.support.browser import profile
from tests.support.instance import Instance, running_instance
from tests.support.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("web-ui-codec")]

KEY = "a key that makes its holder a user"
PASSWORD = "correct horse battery staple"
WIDE = {"width": 1700, "height": 1100}


async def use_endpoint(page: Page, ui_url: str, endpoint: str) -> None:
    """Enter the codec endpoint into the Web UI's settings of this browser, which its dialog keeps there."""
    await page.goto(ui_url)
    settings = {"overrideRemoteCodecConfiguration": True, "endpoint": endpoint, "includeCredentials": True}
    for name, value in settings.items():
        await page.evaluate("([name, value]) => localStorage.setItem(name, value)", [name, json.dumps(value)])


async def job_of(maestro: Instance) -> str:
    """Have a message answered, and return the id of its job."""
    async with maestro.client("shown", api_key=KEY) as client:
        await client.say("hello")
        [job] = await maestro.ended("shown", "completed")
    return str(job["id"])


async def test_payloads_are_shown_after_a_login_and_not_before(tmp_path: Path, chromium: Browser) -> None:
    codec = {"keys": [{"id": "first", "key": base64.b64encode(os.urandom(32)).decode()}]}
    webui = {"enabled": True, "port": free_port(), "password": PASSWORD}
    dashboard = f"http://localhost:{webui['port']}"
    async with (
        running_instance(tmp_path, temporal={"codec": codec}, webui=webui, web={"apiKey": KEY}) as maestro,
        profile(chromium, viewport=WIDE) as context,
    ):
        job, page = await job_of(maestro), await context.new_page()
        workflow = f"{maestro.ui_url}/namespaces/default/workflows/{job}"
        await use_endpoint(page, maestro.ui_url, f"{dashboard}/api/codec")
        async with page.expect_response(lambda response: "/api/codec/decode" in response.url) as refused:
            await page.goto(workflow)
        assert (await refused.value).status == 401
        await expect(page.get_by_text(job).first).to_be_visible()
        await expect(page.get_by_text('"tool_rounds"')).to_have_count(0)
        await page.goto(f"{dashboard}/login")
        await page.fill("input[type=password]", PASSWORD)
        await page.get_by_role("button", name="Log in").first.click()
        await page.wait_for_url(f"{dashboard}/")
        await page.goto(workflow)
        await expect(page.get_by_text('"tool_rounds"').first).to_be_visible()
