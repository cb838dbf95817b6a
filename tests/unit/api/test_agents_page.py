"""The pages of agents: listed, made, changed, paused, archived, rolled back, and given channels, with plain forms."""

import html
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.edits import AgentChange
from maestro.domain.conducting.conductor import ActionOutcome
from maestro.domain.context.layers import build_persona
from maestro.domain.jobs.job import JobStatus
from maestro.domain.tags.actions import ActionState
from maestro.domain.tags.grammar import parse_answer
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent
from tests.support.usage_rows import answered

LIST, PAGE = "/agents", "/agent/ada"
XSS = "<img src=x onerror=alert(1)>"
LINE = re.compile(r'id="agent-([a-z0-9-]+)"')
FIELD = re.compile(r'<(?:input|textarea|select)[^>]* name="(\w+)"')


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def form(**changes: str) -> dict[str, str]:
    """Return what the form of ada sends."""
    return {"name": "Ada", "role": "assistant", "system_prompt": "Be brief.", "version": "1", **changes}


def change(rows: JobRows, slug: str = "ada", **fields: Any) -> None:
    with rows.store.begin() as tx:
        tx.agents.change(tx.agents.get_agent_by_slug(slug), AgentChange(**fields), "operator", "because")


async def ended(http: httpx.AsyncClient, path: str, data: dict[str, str], done: str, page: str = PAGE) -> str:
    """Send a form that is obeyed, and return the page it leads to."""
    led = await http.post(path, data=data)
    assert (led.status_code, led.headers.get("Location")) == (303, f"{page}?done={done}"), led.text
    return html.unescape((await http.get(led.headers["Location"])).text)


async def test_the_list_says_what_each_does_today(rows: JobRows, http: httpx.AsyncClient) -> None:
    for slug in ("bob", "carl"):
        add_agent(rows, slug)
    change(rows, "bob", status=AgentStatus.PAUSED, model="anthropic/x", fallbacks=("openai/y", "ollama/z"))
    change(rows, "carl", status=AgentStatus.ARCHIVED)
    answered(rows, rows.add(), 0.25)
    rows.end(rows.add(), JobStatus.FAILED, "ProviderDown")
    page = (await http.get(LIST)).text
    assert LINE.findall(page) == ["ada", "bob"]
    assert "web/code" in page
    assert "then openai/y, ollama/z" in page
    assert '<a href="/queue?agent=ada&amp;since=2026-11-20T00:00:00Z">2</a>' in page
    assert (await http.get("/queue?agent=ada&since=2026-11-20T00:00:00Z")).status_code == 200
    assert '<a href="/usage?agent=ada&amp;since=2026-11-20">$0.25</a>' in page
    assert "1 failed" in page
    assert "$0.25" in page
    assert LINE.findall((await http.get(LIST, params={"status": "archived"})).text) == ["carl"]
    assert LINE.findall((await http.get(LIST, params={"q": "ANTHROPIC"})).text) == ["bob"]
    assert "No agent fits." in (await http.get(LIST, params={"q": "nobody"})).text


async def test_yesterday_does_not_count(rows: JobRows, http: httpx.AsyncClient) -> None:
    answered(rows, rows.add(), 0.25)
    rows.clock.go(days=1)
    page = (await http.get(LIST)).text
    assert '<a href="/queue?agent=ada&amp;since=2026-11-21T00:00:00Z">0</a>' in page
    assert "$0.25" not in page


async def test_pages_of_the_list_miss_nobody(rows: JobRows, http: httpx.AsyncClient) -> None:
    for number in range(55):
        add_agent(rows, f"agent-{number:03}")
    page = (await http.get(LIST)).text
    (following,) = re.findall(r'href="([^"]+)">Next page', page)
    slugs = LINE.findall(page) + LINE.findall((await http.get(following)).text)
    assert slugs == ["ada", *(f"agent-{number:03}" for number in range(55))]


async def test_an_agent_is_made_by_the_form(rows: JobRows, http: httpx.AsyncClient) -> None:
    assert 'name="slug"' in (await http.get(f"{LIST}/new")).text
    fields = {
        "slug": "helper",
        "name": XSS[:60],
        "role": "coder",
        "quirks": "Says hm.\r\n\r\nNever laughs.",
        "system_prompt": "One.\r\nTwo.",
        "fallbacks": "a/b c/d",
        "tools_of": "own",
        "tools": "get_time\r\ncalculate",
        "skills_of": "own",
        "allow_users": "discord:1",
        "memory_scope": "conversation",
        "daily_budget_usd": "2.5",
        "reason": "we need one",
    }
    page = await ended(http, LIST, fields, "made", "/agent/helper")
    assert "The agent was created" in page
    with rows.store.view() as tx:
        made = tx.agents.build_detail(tx.agents.get_agent_by_slug("helper"))
    assert (made.role, made.quirks, made.system_prompt) == ("coder", ("Says hm.", "Never laughs."), "One.\nTwo.")
    assert (made.fallbacks, made.tools, made.skills) == (("a/b", "c/d"), ("get_time", "calculate"), ())
    assert made.allow_users is None, "everyone was chosen, whatever stands beside it"
    assert (made.memory_scope, made.daily_budget_usd) == ("conversation", 2.5)


@pytest.mark.parametrize(
    ("fields", "status", "sentence"),
    [
        ({"slug": "ada"}, 409, "there is an agent ada already"),
        ({"slug": "Not A Slug"}, 400, "slug: expected up to 63 lower-case letters"),
        ({"slug": "x", "role": "Two Words"}, 400, "role: expected a lower-case word"),
        ({"slug": "x", "daily_budget_usd": "lots"}, 400, "dailyBudgetUsd: expected a number"),
        ({"slug": "x", "client": "nobody"}, 400, "there is no client 'nobody'"),
        ({"slug": "x", "memory_scope": "banana"}, 400, "memoryScope: expected"),
    ],
)
async def test_what_cannot_be_made_is_said_with_what_was_typed(
    http: httpx.AsyncClient, fields: dict[str, str], status: int, sentence: str
) -> None:
    page = await http.post(LIST, data={"role": "assistant", "description": "typed <b>", **fields})
    assert page.status_code == status
    assert sentence in html.unescape(page.text)
    assert "typed &lt;b&gt;" in page.text


async def test_every_field_that_can_be_edited_is_on_the_page(http: httpx.AsyncClient) -> None:
    fields = set(FIELD.findall((await http.get(PAGE)).text))
    known = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in AgentChange.model_json_schema()["properties"]}
    assert known - {"force"} <= fields


async def test_what_is_saved_unchanged_changes_nothing(rows: JobRows, http: httpx.AsyncClient) -> None:
    change(rows, system_prompt="One.\nTwo.", quirks=("Hm.",), tools=(), allow_users=("web:1",), daily_budget_usd=1e6)
    page = (await http.get(PAGE)).text
    (shown,) = re.findall(r'<form class="fields" id="edit".*?</form>', page, re.DOTALL)
    typed = dict(re.findall(r'<input[^>]* name="(\w+)"[^>]* value="([^"]*)"', shown))
    typed |= dict(re.findall(r'<textarea name="(\w+)"[^>]*>([^<]*)<', shown))
    typed |= dict(re.findall(r'<textarea id="\w+" name="(\w+)"[^>]*>([^<]*)<', shown))
    typed |= dict.fromkeys(re.findall(r'name="(\w+_of)"><[^>]*>[^<]*</option><option value="own" sel', shown), "own")
    typed["system_prompt"] = typed["system_prompt"].replace("\n", "\r\n")
    await ended(http, PAGE, {name: html.unescape(text) for name, text in typed.items()}, "saved")
    with rows.store.view() as tx:
        assert tx.agents.get_agent_by_slug("ada").version == 2


async def test_an_agent_is_changed_and_who_was_slower_is_told(rows: JobRows, http: httpx.AsyncClient) -> None:
    page = await ended(http, PAGE, form(description=XSS, reason="a reason"), "saved")
    assert "The agent was saved" in page
    assert "“a reason”" in page
    raw = (await http.get(PAGE)).text
    assert "<img" not in raw
    slower = await http.post(PAGE, data=form(description="mine"))
    assert slower.status_code == 409
    assert "was changed meanwhile" in slower.text
    assert 'value="mine"' in slower.text
    with rows.store.view() as tx:
        assert tx.agents.get_agent_by_slug("ada").description == XSS


async def test_an_agent_is_paused_archived_restored_and_removed(rows: JobRows, http: httpx.AsyncClient) -> None:
    assert "The agent is paused" in await ended(http, f"{PAGE}/status", {"status": "paused"}, "paused")
    assert "Make active" in await ended(http, f"{PAGE}/status", {"status": "paused"}, "paused")
    assert "its channels were unbound" in await ended(http, f"{PAGE}/status", {"status": "archived"}, "archived")
    assert "Delete permanently" in (await http.get(PAGE)).text
    await ended(http, f"{PAGE}/status", {"status": "active"}, "active")
    with rows.store.view() as tx:
        assert tx.agents.list_channels(tx.agents.get_agent_by_slug("ada")) == []
    add_agent(rows, "bob")
    led = await http.post("/agent/bob/purge")
    assert (led.status_code, led.headers["Location"]) == (303, LIST)
    rows.add()
    kept = await http.post(f"{PAGE}/purge")
    assert (kept.status_code, "cannot be deleted: rows of queue refer to it" in kept.text) == (409, True)


async def test_the_last_conductor_goes_only_by_force(rows: JobRows, http: httpx.AsyncClient) -> None:
    change(rows, role="conductor")
    for path, data in ((f"{PAGE}/status", {"status": "archived"}), (PAGE, form(version="2"))):
        refused = await http.post(path, data=data)
        assert (refused.status_code, "is the only active conductor" in refused.text) == (409, True)
        assert 'name="force"' in refused.text
    await ended(http, PAGE, form(version="2", force="true"), "saved")


async def test_channels_are_given_and_freed(rows: JobRows, http: httpx.AsyncClient) -> None:
    fields = {
        "platform": "discord",
        "channel": "42",
        "permission": "read_only",
        "busy": "collect",
        "key_by_user": "true",
    }
    page = await ended(http, f"{PAGE}/channels", fields, "bound")
    assert "discord/42" in page
    assert "one conversation per user" in page
    taken = await http.post(f"{PAGE}/channels", data=fields)
    assert (taken.status_code, "belongs to the agent ada already" in taken.text) == (409, True)
    wrong = await http.post(f"{PAGE}/channels", data={"platform": "No!", "channel": "two words"})
    assert (wrong.status_code, "platform: expected" in wrong.text, "channel: expected" in wrong.text) == (
        400,
        True,
        True,
    )
    assert 'value="two words"' in wrong.text
    (number,) = re.findall(r'name="number" value="(\d+)"><button[^>]*aria-label="Free discord/42"', page)
    assert "discord/42" not in await ended(http, f"{PAGE}/channels/remove", {"number": number}, "freed")
    assert (await http.post(f"{PAGE}/channels/remove", data={"number": number})).status_code == 404


async def test_a_channel_of_the_configuration_is_left_to_it(rows: JobRows, http: httpx.AsyncClient) -> None:
    with rows.store.begin() as tx:
        tx.agents.list_channels(tx.agents.get_agent_by_slug("ada"))[0].configured = True
    page = (await http.get(PAGE)).text
    assert ("of the configuration" in page, "Free web/code" in page) == (True, False)
    assert (await http.post(f"{PAGE}/channels/remove", data={"number": "1"})).status_code == 409


async def test_edits_are_shown_line_by_line_and_taken_back(rows: JobRows, http: httpx.AsyncClient) -> None:
    change(rows, system_prompt="one\ntwo\nthree\nfour\nfive\nsix <b>")
    change(rows, system_prompt="one\ntwo\nthree\nfour\nfive\n6", tools=("get_time",))
    history = (await http.get(f"{PAGE}/history")).text
    assert re.findall(r'id="version-(\d)"', history) == ["3", "2", "1"]
    assert "systemPrompt, tools" in history
    shown = (await http.get(f"{PAGE}/history/3")).text
    assert "<del>six &lt;b&gt;</del><ins>6</ins>" in shown
    assert '<span class="gap">…</span><span>four</span>' in shown
    assert "<del>(the common setting)</del><ins>get_time</ins>" in shown
    first = (await http.get(f"{PAGE}/history/1")).text
    assert ("<ins>Be brief.</ins>" in first, "<del>" in first) == (True, False)
    beside = (await http.get(f"{PAGE}/history/2?against=3")).text
    assert "<del>6</del><ins>six &lt;b&gt;</ins>" in beside
    assert '<p class="fine">Maestro 1.2.3</p>' in beside, "the release is not that of the agent"
    page = await ended(http, f"{PAGE}/history/2/rollback", {"reason": "it was better"}, "rolled")
    assert "it was better" in page
    with rows.store.view() as tx:
        agent = tx.agents.get_agent_by_slug("ada")
        assert (agent.version, agent.system_prompt[-7:], agent.tools) == (4, "six <b>", None)
    for missing in (f"{PAGE}/history/99", "/agent/nobody/history", "/agent/nobody"):
        gone = await http.get(missing)
        assert (gone.status_code, "<h1>This cannot be shown</h1>" in gone.text) == (404, True)
    assert (await http.post(f"{PAGE}/history/99/rollback")).status_code == 404


async def test_what_its_answers_did_leads_to_their_jobs(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id, other = rows.add(), rows.add(agent=None)
    tag = parse_answer("[UPDATE_AGENT:bob]\nrole: coder\n[/UPDATE_AGENT]").tags[0]
    with rows.store.begin() as tx:
        tx.jobs.actions.add_outcomes(
            job_id, [(tag, ActionOutcome(ActionState.REFUSED, f"not allowed {XSS}", subject="bob"))]
        )
        tx.jobs.actions.add_outcomes(other, [(tag, ActionOutcome(ActionState.DONE, "by somebody else", subject="bob"))])
    page = (await http.get(PAGE)).text
    assert f'href="/queue/{job_id}"' in page
    assert "update agent" in page
    assert "not allowed &lt;img" in page
    assert "by somebody else" not in page


async def test_an_agent_answers_in_the_language_of_the_form(rows: JobRows, http: httpx.AsyncClient) -> None:
    await ended(http, PAGE, form(language="Brazilian Portuguese"), "saved")
    assert 'id="language" name="language" value="Brazilian Portuguese"' in (await http.get(PAGE)).text
    with rows.store.view() as tx:
        told = build_persona(tx.agents.get_agent_by_slug("ada"), (), (), 4_000)
    assert "Answer in this language, whatever language you are asked in: Brazilian Portuguese" in told.text
    assert (await http.get("/api/agents/ada")).json()["language"] == "Brazilian Portuguese"
    await ended(http, PAGE, form(language="", version="2"), "saved")
    with rows.store.view() as tx:
        assert "language" not in build_persona(tx.agents.get_agent_by_slug("ada"), (), (), 4_000).text
