"""The page of agents' tokens: plain forms make, list and revoke them."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.edits import AgentChange
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent, token_of

PAGE = "/agents/tokens"
TOKEN = re.compile(r"mst_[\w-]{43}")


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def whose(rows: JobRows, token: str) -> str | None:
    with rows.store.view() as tx:
        holder = tx.agents.tokens.find_agent(token)
        return holder.agent.slug if holder is not None else None


def archive(rows: JobRows, slug: str) -> None:
    with rows.store.begin() as tx:
        tx.agents.change(tx.agents.get_agent_by_slug(slug), AgentChange(status=AgentStatus.ARCHIVED), "operator")


async def test_a_token_is_made_by_the_form_and_shown_once(rows: JobRows, http: httpx.AsyncClient) -> None:
    add_agent(rows, "bob")
    made = await http.post(PAGE, data={"agent": "bob", "name": " laptop <b> "})
    assert (made.status_code, made.headers["Cache-Control"]) == (201, "no-store")
    (token,) = TOKEN.findall(made.text)
    assert whose(rows, token) == "bob"
    listed = (await http.get(PAGE)).text
    assert token not in listed
    assert f"ends in <code>{token[-4:]}</code>" in listed
    assert "laptop &lt;b&gt;" in listed
    with rows.store.view() as tx:
        (entry,) = tx.system.audit.list_latest_entries(5)
    assert (entry.actor, entry.action, entry.subject) == ("operator", "token.create", "bob")


async def test_a_token_is_revoked_by_its_button(rows: JobRows, http: httpx.AsyncClient) -> None:
    kept, gone = token_of(rows), token_of(rows)
    led = await http.post(f"{PAGE}/revoke", data={"agent": "ada", "number": "2"})
    assert (led.status_code, led.headers["Location"]) == (303, PAGE)
    assert (whose(rows, kept), whose(rows, gone)) == ("ada", None)
    listed = (await http.get(PAGE)).text
    assert 'value="1"' in listed
    assert 'value="2"' not in listed


@pytest.mark.parametrize(
    ("agent", "name", "status", "sentence"),
    [
        ("nobody", "", 404, "there is no agent &#39;nobody&#39;"),
        ("", "", 404, "there is no agent"),
        ("gone", "", 409, "agent gone is archived"),
        ("ada", "two\nlines", 400, "name: expected up to 64 characters"),
    ],
)
async def test_what_cannot_be_made_is_said_on_the_page(
    rows: JobRows, http: httpx.AsyncClient, agent: str, name: str, status: int, sentence: str
) -> None:
    add_agent(rows, "gone")
    archive(rows, "gone")
    page = await http.post(PAGE, data={"agent": agent, "name": name})
    assert page.status_code == status
    assert sentence in page.text
    assert "<form" in page.text
    assert not TOKEN.search(page.text)


async def test_what_cannot_be_revoked_is_said_on_the_page(rows: JobRows, http: httpx.AsyncClient) -> None:
    add_agent(rows, "bob")
    token = token_of(rows)
    page = await http.post(f"{PAGE}/revoke", data={"agent": "bob", "number": "1"})
    assert page.status_code == 404
    assert "agent bob has no token 1" in page.text
    assert whose(rows, token) == "ada"


async def test_archived_agents_are_not_offered_and_a_named_one_is_chosen(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    for slug in ("bob", "gone"):
        add_agent(rows, slug)
    archive(rows, "gone")
    page = (await http.get(PAGE, params={"agent": "bob"})).text
    assert re.findall(r'<option value="(\w+)"( selected)?', page) == [("ada", ""), ("bob", " selected")]


async def test_many_tokens_are_listed_in_pages(rows: JobRows, http: httpx.AsyncClient) -> None:
    for _ in range(45):
        token_of(rows)
    page = (await http.get(PAGE)).text
    [following] = re.findall(r'rel="next" href="([^"]+)"', page)
    rest = (await http.get(following)).text
    found = [re.findall(r'id="token-(\d+)"', text) for text in (page, rest)]
    assert [len(one) for one in found] == [40, 5]
    assert len({*found[0], *found[1]}) == 45
    assert "Show the newest" in (await http.get(f"{PAGE}?cursor=1")).text


async def test_a_login_needs_its_token_to_make_one(rows: JobRows) -> None:
    async with client(app_of(rows)) as http:
        await http.post("/login", json={"password": BASIC[1]})
        page = (await http.get(PAGE)).text
        assert (await http.post(PAGE, data={"agent": "ada"})).status_code == 403
        (csrf,) = set(re.findall(r'name="csrf_token" value="([^"]+)"', page))
        assert (await http.post(PAGE, data={"agent": "ada", "csrf_token": csrf})).status_code == 201


async def test_other_pages_lead_here(http: httpx.AsyncClient) -> None:
    for page in ("/chat", "/maestro"):
        assert f'href="{PAGE}"' in (await http.get(page)).text
