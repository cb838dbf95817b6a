"""The server of the API as it ends: nobody who waits for a person's answer is cut off."""

import asyncio
from contextlib import suppress

import httpx

from maestro.bootstrap.api import build_server
from maestro.domain.settings.process import WebuiSettings
from maestro.settings import Settings
from tests.support.api_client import parts
from tests.support.job_rows import JobRows
from tests.support.outside import outside_tools, token_of, until_asked
from tests.support.ports import free_port


async def test_who_waits_for_an_answer_is_told_to_ask_again_when_the_process_ends(rows: JobRows) -> None:
    port = free_port()
    server = build_server(
        Settings(webui=WebuiSettings(port=port)), parts(rows, outside=outside_tools(rows, patience=60))
    )
    serving = asyncio.create_task(server.run())
    await server.wait_until_started()
    headers = {"Authorization": f"Bearer {token_of(rows)}", "Accept": "application/json, text/event-stream"}
    call = {"name": "ask_question", "arguments": {"question": "Why?"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    async with httpx.AsyncClient(base_url=f"http://localhost:{port}", headers=headers, timeout=60) as http:
        asking = asyncio.create_task(http.post("/mcp", json=message))
        await until_asked(rows, 1)
        serving.cancel()
        answer = await asking
    assert answer.json()["result"]["structuredContent"] == {"questionId": 1, "status": "open"}
    with suppress(asyncio.CancelledError):
        await serving
