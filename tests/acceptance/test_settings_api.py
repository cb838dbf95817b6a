"""Settings that are changed while Maestro runs, through the outside: what is set counts from the next use on."""

import asyncio
import json
import random
import string
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import httpx
import pytest
import pytest_asyncio

from maestro.cli.main import run
from maestro.domain.agent_chat import NOTE, TRUNCATED
from maestro.domain.redaction import REDACTED
from tests.support.instance import PATIENCE, Instance, running_instance
from tests.support.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("settings-api")]

LIMIT = "chat.limits.maxMessageChars"
SCANNER = "chat.scanner"
SECRET = "ghp_" + "".join(random.Random(6).choices(string.ascii_letters + string.digits, k=36))
"""Made here, because no token stands in this repository."""
HANGS = "(a|a)+$"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(
        tmp_path_factory.mktemp("settings"),
        webui={"enabled": True, "port": free_port()},
        chat={"scanner": {"timeoutMs": 10_000}},  # a thread that waits for a core must not end a scan
        tools={"files": True, "default": ["write_file", "read_file"]},
    ) as instance:
        yield instance


@pytest_asyncio.fixture(loop_scope="module")
async def http(maestro: Instance) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API; what a test has set is taken back after it."""
    port = maestro.loaded.settings.webui.port
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http:
        yield http
        page = (await http.get("/api/settings")).json()
        ours = {one["key"]: None for one in page["items"] if one["origin"] == "runtime"}
        await http.patch("/api/settings", json=ours)


async def change(http: httpx.AsyncClient, **values: Any) -> None:
    """Set keys of the scanner."""
    answer = await http.patch("/api/settings", json={f"{SCANNER}.{key}": value for key, value in values.items()})
    assert answer.status_code == HTTPStatus.OK, answer.text


async def posted(http: httpx.AsyncClient, text: str) -> str:
    """Post, and return what became of it."""
    answer = (await http.post("/api/chat", json={"text": text})).json()
    return next(str(one["text"]) for one in (await http.get("/api/chat")).json() if one["id"] == answer["id"])


async def test_the_next_post_is_cut_at_the_limit_that_was_set(maestro: Instance, http: httpx.AsyncClient) -> None:
    long = "words and " * 20
    assert await posted(http, long) == long
    answer = await http.patch("/api/settings", json={LIMIT: 100})
    assert (await posted(http, long)) == long[: 100 - len(TRUNCATED)] + TRUNCATED
    found = {one["key"]: one for one in answer.json()["items"]}
    assert (found[LIMIT]["origin"], found["web.port"]["origin"], found["questions.expiryHours"]["origin"]) == (
        "runtime",
        "file",
        "default",
    )
    await http.patch("/api/settings", json={LIMIT: None})
    assert await posted(http, long) == long
    noted = maestro.query("SELECT actor, detail FROM audit_log WHERE subject = ? ORDER BY id", LIMIT)
    assert [tuple(row) for row in noted] == [("operator", "4096 -> 100"), ("operator", "100 -> 4096 (taken back)")]


async def test_what_another_process_sets_counts_here_without_a_restart(
    maestro: Instance, http: httpx.AsyncClient
) -> None:
    command = ["settings", "set", LIMIT, "70", "--config", str(maestro.config_file)]
    assert await asyncio.to_thread(run, command) == 0
    async with asyncio.timeout(PATIENCE):
        while len(await posted(http, "x" * 200)) == 200:
            pass


async def test_the_scanner_is_switched_off_and_on(http: httpx.AsyncClient) -> None:
    assert await posted(http, f"my token is {SECRET}") == f"my token is {REDACTED}{NOTE}"
    await change(http, enabled=False)
    assert await posted(http, f"my token is {SECRET}") == f"my token is {SECRET}"
    await change(http, enabled=None)
    assert REDACTED in await posted(http, SECRET)


async def test_what_cannot_be_scanned_is_kept_or_not_as_fail_mode_says(http: httpx.AsyncClient) -> None:
    hanging = "a" * 40 + "!"
    await change(http, patterns=[HANGS], timeoutMs=300)
    assert await posted(http, hanging) == hanging
    await change(http, failMode="closed")
    assert hanging not in await posted(http, hanging)
    refused = await http.patch("/api/settings", json={f"{SCANNER}.patterns": ["("]})
    assert "chat.scanner.patterns[0]: expected a regular expression" in refused.json()["message"]


async def test_a_key_that_needs_a_restart_says_where_it_is_set(maestro: Instance, http: httpx.AsyncClient) -> None:
    answer = await http.patch("/api/settings", json={LIMIT: 100, "chat.enabled": False})
    assert (answer.status_code, answer.json()["error"]) == (HTTPStatus.CONFLICT, "NeedsRestart")
    assert f"set it in {maestro.config_file} or in MAESTRO_CHAT_ENABLED" in answer.json()["message"]
    assert len(await posted(http, "x" * 200)) == 200, "nothing of it was set"


async def test_memory_and_results_of_tools_are_kept_without_secrets(maestro: Instance, http: httpx.AsyncClient) -> None:
    write = ("write_file", json.dumps({"path": "note.txt", "content": f"token {SECRET}"}))
    learned = f"[MEMORY:sticky] The token is {SECRET}. [/MEMORY][STATE:deploy_key] {SECRET} [/STATE]"
    for name, told in (("guarded", REDACTED), ("open", SECRET)):
        question = f"look into the {name} note"
        maestro.llm.script(question, calls=(write,), rounds=0)
        maestro.llm.script(question, calls=(("read_file", '{"path": "note.txt"}'),), rounds=1)
        maestro.llm.script(question, reply=f"Read: {{results}} {learned}", rounds=2)
        async with maestro.client(name) as client:
            answer = await client.ask(question, patience=PATIENCE)
        assert answer == f"Read: Wrote 46 characters to note.txt.; token {told}"
        *_, last = maestro.llm.matching(question)
        assert last.results[-1] == ("read_file", f"token {told}")
        kept = maestro.query("SELECT content FROM memory_facts UNION SELECT value FROM memory_state")
        assert any(told in row[0] for row in kept)
        assert (SECRET in json.dumps([row[0] for row in kept])) is (told == SECRET)
        await change(http, scope=[])


async def test_prompts_and_what_goes_out_are_scanned_where_that_is_wanted(
    maestro: Instance, http: httpx.AsyncClient
) -> None:
    maestro.llm.script("do you see", reply=f"It is {SECRET}.")
    await change(http, scope=["prompts", "outgoing"])
    async with maestro.client("scanned") as client:
        assert await client.ask(f"do you see {SECRET} there", patience=PATIENCE) == f"It is {REDACTED}."
    (asked,) = maestro.llm.matching("do you see")
    assert asked.texts[-1].endswith(f"do you see {REDACTED} there")
    await change(http, scope=None)
    async with maestro.client("plain") as client:
        assert await client.ask(f"do you see {SECRET} now", patience=PATIENCE) == f"It is {SECRET}."
    assert maestro.llm.matching("do you see")[-1].texts[-1].endswith(f"do you see {SECRET} now")
