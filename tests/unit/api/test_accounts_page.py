"""The page of accounts and connectors: who is asked, who may write, and who pays, by plain forms."""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from maestro.domain.messages import Address
from maestro.domain.people.people import PersonId
from tests.support.api_client import BASIC, app_of, client, parts
from tests.support.job_rows import JobRows
from tests.support.wishes import wish

PAGE = "/accounts"
KEY = "sk-ant-a-key-of-nobody-0000-1234"
TOKEN = "a-token-of-a-bot-of-nobody-5678"
NASTY = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
VIEWER = ("viewer", "only for looking at it all")
ACCOUNT = {"name": "main", "provider": "anthropic", "model": "claude-haiku-4-5", "api_key": KEY}


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def sent(http: httpx.AsyncClient, form: str, done: str, data: Mapping[str, str]) -> str:
    """Send a form that is taken, and return the page that it leads to."""
    led = await http.post(f"{PAGE}/{form}", data=data)
    assert led.status_code == 303, led.text
    assert led.headers["location"] == f"{PAGE}?done={done}"
    page = await http.get(led.headers["location"])
    assert page.status_code == 200
    return page.text


def row(page: str, row_id: str) -> str:
    return page.split(f'<tr id="{row_id}"', 1)[1].split("</tr>", 1)[0]


def audited(rows: JobRows) -> list[tuple[str, str]]:
    with rows.store.view() as tx:
        return [
            (one.action, one.subject)
            for one in reversed(tx.system.audit.list_latest_entries(20))
            if one.actor == "operator"
        ]


async def test_nothing_yet_says_what_to_do(http: httpx.AsyncClient) -> None:
    page = (await http.get(PAGE)).text
    assert "There is no account yet." in page
    assert re.search(r'<details class="more" id="add-account" open>', page)
    for heading in ("Access requests (pairing)", "Connectors", "Clients"):
        assert heading in page


# Accounts of model providers


async def test_an_account_is_added_changed_stopped_and_removed(rows: JobRows, http: httpx.AsyncClient) -> None:
    page = await sent(http, "add", "added", {**ACCOUNT, "models": "claude-opus-4-5, claude-sonnet-4-5"})
    assert "ends in <code>1234</code>" in row(page, "account-main")
    assert "claude-opus-4-5, claude-sonnet-4-5" in row(page, "account-main")
    assert KEY not in page
    form = (await http.get(PAGE, params={"edit": "main"})).text
    assert 'value="claude-opus-4-5 claude-sonnet-4-5"' in form
    assert KEY not in form
    page = await sent(http, "change", "changed", {"name": "main", "priority": "3", "models": "", "api_key": ""})
    assert "priority 3" in row(page, "account-main")
    assert "ends in <code>1234</code>" in row(page, "account-main")
    assert 'action="/accounts/enable"' in row(await sent(http, "disable", "disabled", {"name": "main"}), "account-main")
    assert ">active<" in row(await sent(http, "enable", "enabled", {"name": "main"}), "account-main")
    page = await sent(http, "change", "changed", {"name": "main", "forget_key": "true"})
    assert "ends in" not in row(page, "account-main")
    assert "There is no account yet." in await sent(http, "remove", "removed", {"name": "main"})
    actions = [action for action, subject in audited(rows) if subject == "main"]
    assert actions == ["account.add", *["account.change"] * 4, "account.remove"]


async def test_an_account_that_is_limited_says_of_what_until_when(rows: JobRows, http: httpx.AsyncClient) -> None:
    await sent(http, "add", "added", ACCOUNT)
    with rows.store.begin() as tx:
        tx.llm.accounts.cool_down("main", "claude-haiku-4-5", timedelta(minutes=7), (timedelta(minutes=1),))
    shown = row((await http.get(PAGE)).text, "account-main")
    assert ">limited<" in shown
    assert re.search(r"claude-haiku-4-5 again <time [^>]*>in 7 min</time>", shown)
    assert "RateLimited" in shown
    assert "in 7 min" not in row(await sent(http, "enable", "enabled", {"name": "main"}), "account-main")


@pytest.mark.parametrize(
    ("form", "data", "status", "sentence"),
    [
        ("add", {**ACCOUNT, "name": ""}, 400, "name"),
        ("add", {**ACCOUNT, "priority": "soon"}, 400, "priority"),
        ("add", {**ACCOUNT, "provider": "demo"}, 400, "the demo model answers by itself"),
        ("change", {"name": "nobody"}, 404, "there is no account"),
        ("remove", {"name": NASTY}, 404, "there is no account"),
        ("connectors/add", {"platform": "nowhere"}, 400, "there is no connector for"),
        ("connectors/add", {"platform": "discord", "options": "[1]"}, 400, "expected a JSON object"),
        ("connectors/add", {"platform": "discord"}, 400, "discord/default"),
        ("connectors/change", {"platform": "discord", "account": "x"}, 404, "there is no connector discord/x"),
        ("connectors/remove", {"platform": NASTY, "account": "x"}, 404, "there is no"),
        ("connectors/open-channel", {"platform": "web", "account": "x", "channel": NASTY}, 404, "is not disabled"),
        ("pairings/approve", {"pairing": "77"}, 404, "there is no pairing request"),
        ("people/remove", {"person": "slack:nobody"}, 404, "has no access to remove"),
        ("clients/add", {"name": "Acme", "weight": "0"}, 400, "weight"),
        ("clients/change", {"name": "nobody"}, 404, "there is no client"),
        ("clients/remove", {"name": NASTY}, 404, "there is no client"),
    ],
)
async def test_what_cannot_be_is_said_on_the_page(
    http: httpx.AsyncClient, form: str, data: Mapping[str, str], status: int, sentence: str
) -> None:
    page = await http.post(f"{PAGE}/{form}", data=data)
    assert page.status_code == status, page.text
    (problem,) = re.findall(r'<p class="problem" role="alert">([^<]*)</p>', page.text)
    assert sentence in problem
    assert KEY not in page.text
    assert "<script>alert" not in page.text


async def test_what_was_typed_stays_but_never_a_secret(http: httpx.AsyncClient) -> None:
    page = (await http.post(f"{PAGE}/add", data={**ACCOUNT, "priority": "soon"})).text
    assert 'name="model" type="text" value="claude-haiku-4-5"' in page
    assert KEY not in page
    typed = {"platform": "slack", "account": "work", "secret_botToken": TOKEN, "options": "{"}
    page = (await http.post(f"{PAGE}/connectors/add", data=typed)).text
    assert 'value="work"' in page
    assert TOKEN not in page


# Connectors


async def test_a_connector_is_added_changed_stopped_and_removed(rows: JobRows, http: httpx.AsyncClient) -> None:
    data = {"platform": "discord", "account": "work", "agent": "ada", "secret_token": TOKEN}
    page = await sent(http, "connectors/add", "connecting", {**data, "options": '{"requireMention": false}'})
    shown = row(page, "connector-discord-work")
    assert "token ends in <code>5678</code>" in shown
    assert "not connected yet" in shown
    assert ">ada<" in shown
    assert TOKEN not in page
    form = (await http.get(PAGE, params={"connector": "discord/work"})).text
    assert "&#34;requireMention&#34;: false" in form
    changed = {"platform": "discord", "account": "work", "agent": "", "secret_token": "", "options": "{}"}
    shown = row(await sent(http, "connectors/change", "changed", changed), "connector-discord-work")
    assert "the routing rules" in shown
    assert "ends in <code>5678</code>" in shown
    found = (await http.get("/api/connectors/discord/work")).json()
    assert found["options"] == {}
    which = {"platform": "discord", "account": "work"}
    page = await sent(http, "connectors/disable", "disabled", which)
    assert 'action="/accounts/connectors/enable"' in row(page, "connector-discord-work")
    await sent(http, "connectors/enable", "enabled", which)
    assert "connector-discord-work" not in await sent(http, "connectors/remove", "removed", which)
    assert len(audited(rows)) == 5


async def test_a_connector_says_how_it_is(rows: JobRows, http: httpx.AsyncClient) -> None:
    with rows.store.begin() as tx:
        tx.users.record_connector_state("web", "default", "failed", NASTY, trouble=True)
        tx.users.record_connector_event("web", "default", timedelta(seconds=3))
    page = (await http.get(PAGE)).text
    shown = row(page, "connector-web-default")
    assert '<span class="tag bad">failed</span>' in shown
    assert "3.0 s late" in shown
    assert "<script>alert" not in page


async def test_a_closed_channel_is_opened(rows: JobRows, http: httpx.AsyncClient) -> None:
    place = Address(platform="slack", account="default", channel="C-1")
    with rows.store.begin() as tx:
        tx.bots.channels.disable(place, "the bot was taken out")
    page = (await http.get(PAGE)).text
    assert "the bot was taken out" in page
    data = {"platform": "slack", "account": "default", "channel": "C-1"}
    assert "the bot was taken out" not in await sent(http, "connectors/open-channel", "opened", data)
    with rows.store.view() as tx:
        assert tx.bots.channels.read_disable_reason(place) is None


# People


@pytest.mark.parametrize(("owner", "word"), [({}, "user"), ({"owner": "true"}, "owner")])
async def test_a_person_is_let_in(rows: JobRows, http: httpx.AsyncClient, owner: dict[str, str], word: str) -> None:
    waiting = wish(rows, "ada", "ABCDEFGH")
    shown = row((await http.get(PAGE)).text, f"pairing-{waiting.id}")
    assert "<code>ABCDEFGH</code>" in shown
    page = await sent(http, "pairings/approve", word, {"pairing": str(waiting.id), **owner})
    assert f"pairing-{waiting.id}" not in page
    assert "Users with access: 1, refused: 0" in page
    with rows.store.view() as tx:
        assert tx.users.pairings.is_known(PersonId("slack", "ada"))
        assert tx.users.owners.is_owner(PersonId("slack", "ada")) is bool(owner)
    assert "Users with access: 1" not in await sent(http, "people/remove", "forgotten", {"person": "slack:ada"})
    with rows.store.view() as tx:
        assert not tx.users.pairings.is_known(PersonId("slack", "ada"))


async def test_a_person_is_kept_out_and_let_in_after_all(rows: JobRows, http: httpx.AsyncClient) -> None:
    waiting = wish(rows, "bob", "BCDEFGHJ")
    page = await sent(http, "pairings/refuse", "refused", {"pairing": str(waiting.id)})
    assert "Users with access: 0, refused: 1" in page
    page = await sent(http, "pairings/approve", "user", {"pairing": str(waiting.id)})
    assert "Users with access: 1, refused: 0" in page


async def test_an_invitation_is_shown_once(rows: JobRows, http: httpx.AsyncClient) -> None:
    made = await http.post(f"{PAGE}/pairings/invite", data={"owner": "true"})
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    (code,) = re.findall(r"/pair ([A-Z0-9]{8})<", made.text)
    assert "as an owner" in made.text
    assert code not in (await http.get(PAGE)).text
    with rows.store.begin() as tx:
        found = tx.users.pairings.redeem_invitation(code)
    assert found is not None
    assert found.as_owner


# Clients


async def test_a_client_is_added_changed_and_removed(rows: JobRows, http: httpx.AsyncClient) -> None:
    data = {"name": "Acme", "slug": "acme", "daily_budget_usd": "2.5", "weight": "2", "plan": "monthly"}
    shown = row(await sent(http, "clients/add", "added", data), "client-1")
    assert "$2.50" in shown
    assert ">2<" in shown
    form = (await http.get(PAGE, params={"client": "Acme"})).text
    assert 'name="daily_budget_usd" type="text" value="2.5"' in form
    changed = {"name": "Acme", "slug": "", "daily_budget_usd": "", "weight": "1", "plan": "monthly"}
    assert "general budget" in row(await sent(http, "clients/change", "changed", changed), "client-1")
    assert 'id="client-1"' not in await sent(http, "clients/remove", "removed", {"name": "Acme"})
    assert len(audited(rows)) == 3


# Everything


async def test_a_viewer_sees_the_lists_and_no_form(rows: JobRows, http: httpx.AsyncClient) -> None:
    await sent(http, "add", "added", ACCOUNT)
    wish(rows, "ada", "ABCDEFGH")
    guard = replace(parts(rows).guard, viewer_password=VIEWER[1])
    async with client(app_of(rows, guard=guard), auth=VIEWER) as looking:
        page = (await looking.get(PAGE)).text
        assert 'id="account-main"' in page
        assert 'action="/accounts' not in page
        assert (await looking.post(f"{PAGE}/remove", data={"name": "main"})).status_code == 403


async def test_nothing_that_somebody_wrote_is_markup(rows: JobRows, http: httpx.AsyncClient) -> None:
    wish(rows, NASTY, "ABCDEFGH")
    with rows.store.begin() as tx:
        tx.bots.channels.disable(Address(platform="web", account="default", channel=NASTY), NASTY)
    for name in ("done", "edit", "connector", "client"):
        page = (await http.get(PAGE, params={name: NASTY})).text
        assert "<script>alert" not in page
        assert "<img" not in page
