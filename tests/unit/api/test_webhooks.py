"""``/api/webhooks`` and the page of webhooks: made, listed, changed, given other secrets and removed."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.api_client import BASIC, app_of, client
from tests.support.hooks import SECRET, new_webhook, post, signature
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent

API, PAGE = "/api/webhooks", "/webhooks"
MADE = re.compile(r"whsec_[A-Za-z0-9+/]{43}=")
FORM = {
    "path": "deploys",
    "agent": "ada",
    "prompt_template": "{{payload.state}}",
    "platform": "web",
    "channel": "builds",
    "scheme": "standard",
    "per_minute": "60",
}


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def audit(rows: JobRows, count: int) -> list[tuple[str, str, str]]:
    with rows.store.view() as tx:
        return [(entry.actor, entry.action, entry.subject) for entry in tx.system.audit.list_latest_entries(count)]


# The API


async def test_a_webhook_is_made_with_a_secret_that_is_shown_once(rows: JobRows, http: httpx.AsyncClient) -> None:
    made = await http.post(API, json=new_webhook(secret=""))
    assert made.status_code == 201
    secret = made.json()["secret"]
    assert MADE.fullmatch(secret)
    shown = (await http.get(f"{API}/deploys")).json()
    assert shown == {name: value for name, value in made.json().items() if name != "secret"}
    assert (shown["hook"], shown["name"], shown["last4"]) == ("/hooks/deploys", "deploys", secret[-4:])
    assert secret not in (await http.get(API)).text
    assert audit(rows, 1) == [("operator", "webhook.create", "deploys")]


async def test_the_secret_of_a_sender_is_never_returned(http: httpx.AsyncClient) -> None:
    made = (await http.post(API, json=new_webhook())).json()
    assert (made["secret"], made["last4"]) == ("", SECRET[-4:])


async def test_a_webhook_is_changed_and_removed(rows: JobRows, http: httpx.AsyncClient) -> None:
    add_agent(rows, "bob")
    await http.post(API, json=new_webhook())
    changed = await http.patch(f"{API}/deploys", json={"agent": "bob", "thread": "t-1", "perMinute": 5})
    assert (changed.json()["agent"], changed.json()["thread"], changed.json()["perMinute"]) == ("bob", "t-1", 5)
    assert changed.json()["channel"] == "builds"
    assert (await http.delete(f"{API}/deploys")).status_code == 204
    assert (await http.get(f"{API}/deploys")).status_code == 404
    actions = [action for _, action, _ in audit(rows, 3)]
    assert actions == ["webhook.remove", "webhook.change", "webhook.create"]


async def test_webhooks_are_listed_in_pages(http: httpx.AsyncClient) -> None:
    for path in ("c", "a", "b"):
        await http.post(API, json=new_webhook(path))
    first = (await http.get(API, params={"limit": 2})).json()
    rest = (await http.get(API, params={"cursor": first["next"]})).json()
    assert [one["path"] for one in (*first["items"], *rest["items"])] == ["a", "b", "c"]
    assert rest["next"] is None


@pytest.mark.parametrize(
    ("changes", "status", "problem"),
    [
        ({"path": "Not a slug"}, 400, "body path"),
        ({"promptTemplate": "{{user}}"}, 400, "does not begin with payload"),
        ({"promptTemplate": " \n"}, 400, "body promptTemplate: is empty; write what the agent is to do"),
        ({"secret": "hunter2"}, 400, "secret: expected whsec_"),
        ({"secret": "file:relative"}, 400, "the whole path of a file"),
        ({"scheme": "none"}, 400, "body scheme"),
        ({"agent": "nobody"}, 404, "there is no agent"),
        ({"path": "taken"}, 409, "there is a webhook 'taken' already"),
    ],
)
async def test_what_breaks_a_rule_is_refused(
    http: httpx.AsyncClient, changes: dict[str, str], status: int, problem: str
) -> None:
    await http.post(API, json=new_webhook("taken"))
    refused = await http.post(API, json=new_webhook(**changes))
    assert refused.status_code == status
    assert problem in refused.json()["message"]
    assert "hunter2" not in refused.text


async def test_the_number_of_a_removed_webhook_is_never_given_again(rows: JobRows, http: httpx.AsyncClient) -> None:
    numbers = []
    for _ in range(2):
        await http.post(API, json=new_webhook())
        with rows.store.view() as tx:
            numbers.append(tx.background.webhooks.get("deploys").id)
        body = b"{}"
        taken = await post(http, body, signature(body, "d-1", now=rows.clock.now))
        assert (taken.status_code, taken.json()["duplicate"]) == (202, False)
        await http.delete(f"{API}/deploys")
    assert numbers == [1, 2]
    listed = (await http.get("/api/jobs", params={"kind": "webhook"})).json()["items"]
    assert [job["webhook"] for job in listed] == [None, None]
    with rows.store.view() as tx:
        assert tx.background.webhooks.count_pending() == 2


async def test_the_jobs_of_a_webhook_are_found(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.add()
    for path, word in (("deploys", "red"), ("orders", "paid")):
        await http.post(API, json=new_webhook(path))
        body = f'{{"state": "{word}"}}'.encode()
        await post(http, body, signature(body, "d-1", now=rows.clock.now), path)
    for wanted in ({"webhook": "orders"}, {"q": "paid"}):
        (job,) = (await http.get("/api/jobs", params=wanted)).json()["items"]
        assert (job["webhook"], "paid" in job["excerpt"]) == ("orders", True)
    assert (await http.get("/api/jobs", params={"webhook": "nothing"})).json()["items"] == []


# The page


async def test_the_form_makes_a_webhook_and_shows_its_secret_once(rows: JobRows, http: httpx.AsyncClient) -> None:
    made = await http.post(PAGE, data=FORM)
    assert (made.status_code, made.headers["Cache-Control"]) == (201, "no-store")
    (secret,) = MADE.findall(made.text)
    assert "http://localhost:8080/hooks/deploys" in made.text
    listed = (await http.get(PAGE)).text
    assert secret not in listed
    assert f"ends in <code>{secret[-4:]}</code>" in listed
    assert audit(rows, 1) == [("operator", "webhook.create", "deploys")]


@pytest.mark.parametrize(
    ("changes", "status", "problem"),
    [
        ({"path": "<b>"}, 400, "path: expected"),
        ({"prompt_template": "{{<b>}}"}, 400, "does not begin with payload"),
        ({"per_minute": "many"}, 400, "perMinute:"),
        ({"agent": "nobody"}, 404, "there is no agent"),
        ({"secret": "hunter2"}, 400, "secret: expected"),
    ],
)
async def test_a_mistake_is_said_above_what_was_typed(
    http: httpx.AsyncClient, changes: dict[str, str], status: int, problem: str
) -> None:
    answer = await http.post(PAGE, data={**FORM, "channel": "my-channel", **changes})
    assert answer.status_code == status
    assert problem in answer.text
    assert 'value="my-channel"' in answer.text
    assert "<b>" not in answer.text
    assert "hunter2" not in answer.text


async def test_a_webhook_is_edited_on_the_page(http: httpx.AsyncClient) -> None:
    await http.post(PAGE, data={**FORM, "secret": SECRET})
    assert "{{payload.state}}</textarea>" in (await http.get(PAGE, params={"edit": "deploys"})).text
    saved = await http.post(f"{PAGE}/change", data={**FORM, "channel": "elsewhere", "name": ""})
    assert (saved.status_code, saved.headers["Location"]) == (303, PAGE)
    assert (await http.get(f"{API}/deploys")).json()["channel"] == "elsewhere"
    wrong = await http.post(f"{PAGE}/change", data={**FORM, "channel": "two words"})
    assert wrong.status_code == 400
    assert "Change deploys" in wrong.text


async def test_buttons_disable_enable_rotate_and_remove(http: httpx.AsyncClient) -> None:
    await http.post(PAGE, data=FORM)
    for action, enabled in (("disable", False), ("enable", True)):
        answer = await http.post(f"{PAGE}/{action}", data={"path": "deploys"})
        assert answer.status_code == 303
        assert (await http.get(f"{API}/deploys")).json()["enabled"] is enabled
    rotated = await http.post(f"{PAGE}/rotate", data={"path": "deploys"})
    (secret,) = MADE.findall(rotated.text)
    assert (await http.get(f"{API}/deploys")).json()["last4"] == secret[-4:]
    assert (await http.post(f"{PAGE}/remove", data={"path": "deploys"})).status_code == 303
    assert (await http.post(f"{PAGE}/remove", data={"path": "deploys"})).status_code == 404
    assert (await http.get(PAGE, params={"edit": "deploys"})).status_code == 404


async def test_the_form_knows_our_account_and_the_thread(rows: JobRows, http: httpx.AsyncClient) -> None:
    await http.post(PAGE, data={**FORM, "account": "second", "thread": "t-1"})
    shown = (await http.get(f"{API}/deploys")).json()
    assert (shown["account"], shown["thread"]) == ("second", "t-1")
    edit = (await http.get(PAGE, params={"edit": "deploys"})).text
    assert ('value="second"' in edit, 'value="t-1"' in edit) == (True, True)
    await http.post(f"{PAGE}/change", data={**FORM, "account": "second", "thread": ""})
    assert (await http.get(f"{API}/deploys")).json()["thread"] == ""
