"""Accounts on the REST API: what is shown, what may be changed, and that no key comes back.

See docs/decisions.md: secrets at rest.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from maestro.domain.llm.accounts import AccountSource, ModelAccount
from maestro.installation.data_folder import SecretKeys
from tests.support.api_client import BASIC, ENCRYPTION_KEY, app_of, client
from tests.support.job_rows import JobRows

KEY = "sk-KEY-SECRET-23-abcd"
OTHER_KEY = "sk-KEY-SECRET-42-wxyz"
NEW = {"name": "mine", "provider": "openai", "model": "gpt-4o-mini", "models": ["gpt-4o", "o3"], "apiKey": KEY}


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """Open a store."""
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def configured(rows: JobRows, name: str = "main", source: AccountSource = AccountSource.CONFIGURATION) -> None:
    """Enter an account as a start of Maestro does."""
    with rows.store.begin() as tx:
        tx.llm.accounts.set_configured(
            [
                ModelAccount(
                    name=name,
                    provider="anthropic",
                    model="claude-sonnet-4-6",
                    source=source,
                    last4="1234",
                    created_at=tx.now,
                    updated_at=tx.now,
                )
            ]
        )


def stored(rows: JobRows, name: str = "mine") -> ModelAccount:
    with rows.store.view() as tx:
        return tx.llm.accounts.get_account(name)


def audited(rows: JobRows) -> list[tuple[str, str, str, str]]:
    with rows.store.view() as tx:
        return [
            (entry.actor, entry.action, entry.subject, entry.detail)
            for entry in reversed(tx.system.audit.list_latest_entries(20))
        ]


async def added(http: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    """Add an account and return what was answered."""
    answer = await http.post("/api/accounts", json={**NEW, **changes})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


# What is shown


async def test_a_new_account_is_shown_without_its_key(http: httpx.AsyncClient, rows: JobRows) -> None:
    assert await added(http) == {
        "name": "mine",
        "type": "api_key",
        "provider": "openai",
        "model": "gpt-4o-mini",
        "models": ["gpt-4o", "o3"],
        "baseUrl": "",
        "homeDir": "",
        "priority": 20,
        "requestsPerMinute": 0,
        "tokensPerMinute": 0,
        "concurrency": 0,
        "source": "api",
        "status": "active",
        "state": "active",
        "limits": [],
        "rateLimitedUntil": None,
        "last4": "abcd",
        "reference": "",
        "calls": 0,
        "spentUsd": 0.0,
        "lastError": "",
        "lastErrorAt": None,
        "lastUsedAt": None,
        "createdAt": "2026-11-20T08:00:00Z",
    }
    assert (await http.get("/api/accounts/mine")).json() == (await http.get("/api/accounts")).json()["items"][0]


async def test_the_store_holds_the_key_encrypted_and_the_answers_and_the_audit_log_not_at_all(
    http: httpx.AsyncClient, rows: JobRows
) -> None:
    await added(http)
    await http.patch("/api/accounts/mine", json={"apiKey": OTHER_KEY})
    secret = stored(rows).secret
    assert "SECRET" not in secret
    assert SecretKeys(ENCRYPTION_KEY, {}).reveal_key(secret).get_secret_value() == OTHER_KEY
    for path in ("/api/accounts", "/api/accounts/mine"):
        text = (await http.get(path)).text
        assert secret not in text
        assert "SECRET" not in text
    assert "SECRET" not in str(audited(rows))


@pytest.mark.parametrize(
    ("key", "last4"), [("", ""), ("short", ""), ("x" * 11 + "abcd", ""), ("x" * 12 + "abcd", "abcd")]
)
async def test_only_a_long_key_shows_its_end(http: httpx.AsyncClient, key: str, last4: str) -> None:
    assert (await added(http, apiKey=key))["last4"] == last4


@pytest.mark.parametrize("reference", ["env:OTHER_API_KEY", "file:/run/secrets/openai"])
async def test_a_reference_is_kept_and_shown_as_it_is(http: httpx.AsyncClient, rows: JobRows, reference: str) -> None:
    shown = await added(http, apiKey=reference)
    assert (shown["reference"], shown["last4"]) == (reference, "")
    assert stored(rows).secret == reference


async def test_state_limits_spend_and_last_error_are_shown(http: httpx.AsyncClient, rows: JobRows) -> None:
    await added(http)
    with rows.store.begin() as tx:
        tx.llm.accounts.record_success("mine", "gpt-4o-mini", 0.25)
        tx.llm.accounts.cool_down("mine", "gpt-4o", timedelta(minutes=3), [timedelta(minutes=1)])
        tx.llm.accounts.begin_quota_wait("mine", timedelta(minutes=10))
    shown = (await http.get("/api/accounts/mine")).json()
    assert (shown["state"], shown["status"]) == ("limited", "active")
    assert shown["limits"] == [
        {"model": "", "until": "2026-11-20T08:10:00Z"},
        {"model": "gpt-4o", "until": "2026-11-20T08:03:00Z"},
    ]
    assert shown["rateLimitedUntil"] == "2026-11-20T08:10:00Z"
    assert (shown["calls"], shown["spentUsd"], shown["lastError"]) == (1, 0.25, "QuotaExhausted")
    rows.clock.go(minutes=11)
    shown = (await http.get("/api/accounts/mine")).json()
    assert (shown["state"], shown["limits"], shown["rateLimitedUntil"]) == ("active", [], None)
    assert shown["lastError"] == "QuotaExhausted"


async def test_accounts_come_in_the_order_they_are_asked_in_pages(http: httpx.AsyncClient) -> None:
    for name, priority in (("c", 30), ("a", 10), ("d", 30), ("b", 10)):
        await added(http, name=name, priority=priority)
    seen, cursor = [], None
    while True:
        page = (await http.get("/api/accounts", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        seen += [account["name"] for account in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == ["a", "b", "c", "d"]
    assert (await http.get("/api/accounts?cursor=nonsense")).status_code == 400


# What is refused


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": " blank "}, "name"),
        ({"provider": "Open AI"}, "provider"),
        ({"provider": "unheard-of", "model": ""}, "model must be set"),
        ({"provider": "demo", "model": "demo"}, "demo"),
        ({"baseUrl": "localhost:11434"}, "baseUrl"),
        ({"priority": -1}, "priority"),
        ({"models": ["two words"]}, "models"),
        ({"type": "cli"}, "leave out provider, apiKey and baseUrl"),
        ({"homeDir": "/home/me"}, "homeDir"),
        ({"type": "telepathy"}, "type"),
        ({"apiKey": "sk-KEY-SECRET 23"}, "apiKey"),
        ({"apiKey": "env:NOT A NAME"}, "env:"),
        ({"apiKey": "file:relative/SECRET"}, "whole path"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
async def test_a_mistake_is_named_and_nothing_is_made(
    http: httpx.AsyncClient, changes: dict[str, Any], said: str
) -> None:
    answer = await http.post("/api/accounts", json={**NEW, **changes})
    assert answer.status_code == 400, answer.text
    assert said in answer.json()["message"]
    assert "KEY-SECRET" not in answer.text
    assert (await http.get("/api/accounts")).json()["items"] == []


async def test_a_name_is_taken_once(http: httpx.AsyncClient, rows: JobRows) -> None:
    configured(rows)
    answer = await http.post("/api/accounts", json={**NEW, "name": "main"})
    assert (answer.status_code, answer.json()["error"]) == (409, "Conflict")


async def test_an_account_that_does_not_exist_is_not_found(http: httpx.AsyncClient) -> None:
    for method in ("GET", "PATCH", "DELETE"):
        answer = await http.request(method, "/api/accounts/nobody", json={} if method == "PATCH" else None)
        assert (answer.status_code, answer.json()["error"]) == (404, "NotFound"), method


# What may be changed


async def test_everything_but_name_type_and_provider_may_change(http: httpx.AsyncClient, rows: JobRows) -> None:
    await added(http)
    changes = {
        "model": "gpt-4o",
        "models": ["o3"],
        "priority": 5,
        "requestsPerMinute": 60,
        "tokensPerMinute": 90000,
        "concurrency": 4,
        "apiKey": OTHER_KEY,
        "baseUrl": "http://127.0.0.1:1/v1",
    }
    answer = await http.patch("/api/accounts/mine", json=changes)
    assert answer.status_code == 200, answer.text
    del changes["apiKey"]
    assert answer.json().items() >= {**changes, "last4": "wxyz"}.items()
    for fixed in ({"name": "other"}, {"provider": "gemini"}, {"type": "cli"}):
        assert (await http.patch("/api/accounts/mine", json=fixed)).status_code == 400


async def test_a_change_is_judged_by_the_same_rules(http: httpx.AsyncClient) -> None:
    await added(http)
    for mistake in ({"models": ["two words"]}, {"priority": 5000}, {"homeDir": "/x"}, {"apiKey": "two words"}):
        answer = await http.patch("/api/accounts/mine", json=mistake)
        assert answer.status_code == 400, mistake
    assert (await http.get("/api/accounts/mine")).json()["model"] == "gpt-4o-mini"


async def test_models_are_kept_by_the_names_that_their_provider_knows(http: httpx.AsyncClient) -> None:
    account = await added(http, model="openai/gpt-4o", models=["openai/o3", "gpt-4.1"])
    assert (account["model"], account["models"]) == ("gpt-4o", ["o3", "gpt-4.1"])
    changed = (await http.patch("/api/accounts/mine", json={"model": "openai/o3", "models": ["openai/o4-mini"]})).json()
    assert (changed["model"], changed["models"]) == ("o3", ["o4-mini"])
    changed = (await http.patch("/api/accounts/mine", json={"model": ""})).json()
    assert changed["model"] == "gpt-4o-mini", "the provider's default, as for a new one"


async def test_an_address_has_no_password_in_it(http: httpx.AsyncClient) -> None:
    address = {"baseUrl": "https://me:KEY-SECRET@proxy.example/v1"}
    refused = [await http.post("/api/accounts", json={**NEW, **address})]
    await added(http)
    refused.append(await http.patch("/api/accounts/mine", json={**address, "apiKey": KEY}))
    for answer in refused:
        assert answer.status_code == 400
        assert answer.json()["message"].startswith("baseUrl: ")
        assert "KEY-SECRET" not in answer.text


async def test_a_key_is_not_sent_to_another_address_unasked(http: httpx.AsyncClient) -> None:
    await added(http)
    answer = await http.patch("/api/accounts/mine", json={"baseUrl": "https://elsewhere.example/v1"})
    assert answer.status_code == 400
    assert "give the apiKey again" in answer.json()["message"]
    assert (await http.patch("/api/accounts/mine", json={"baseUrl": ""})).status_code == 200


async def test_an_account_of_the_configuration_is_disabled_and_enabled_but_not_changed(
    http: httpx.AsyncClient, rows: JobRows
) -> None:
    configured(rows)
    assert (await http.patch("/api/accounts/main", json={"status": "disabled"})).json()["state"] == "disabled"
    assert (await http.patch("/api/accounts/main", json={"status": "active"})).json()["state"] == "active"
    for method, body in (("PATCH", {"priority": 1}), ("PATCH", {"apiKey": KEY}), ("DELETE", None)):
        answer = await http.request(method, "/api/accounts/main", json=body)
        assert answer.status_code == 409, (method, body)
        assert "llm.accounts" in answer.json()["message"]
    configured(rows, "anthropic", AccountSource.ENVIRONMENT)
    assert "environment" in (await http.delete("/api/accounts/anthropic")).json()["message"]


async def test_a_new_key_enables_an_account_whose_key_was_refused(http: httpx.AsyncClient, rows: JobRows) -> None:
    await added(http)
    with rows.store.begin() as tx:
        assert tx.llm.accounts.disable_refused(tx.llm.accounts.get_account("mine"))
    shown = (await http.get("/api/accounts/mine")).json()
    assert (shown["state"], shown["lastError"]) == ("disabled", "AuthenticationFailed")
    answer = await http.patch("/api/accounts/mine", json={"apiKey": OTHER_KEY})
    assert (answer.json()["state"], answer.json()["lastError"]) == ("active", "")


async def test_an_account_that_was_made_here_is_removed(http: httpx.AsyncClient) -> None:
    await added(http, name="team a/b")
    assert (await http.delete("/api/accounts/team%20a/b")).status_code == 204
    assert (await http.get("/api/accounts")).json() == {"items": [], "next": None}


async def test_everything_that_was_done_is_on_record(http: httpx.AsyncClient, rows: JobRows) -> None:
    await added(http)
    await http.patch("/api/accounts/mine", json={"priority": 3, "status": "disabled", "apiKey": OTHER_KEY})
    await http.patch("/api/accounts/mine", json={})
    await http.delete("/api/accounts/mine")
    assert audited(rows) == [
        ("operator", "account.add", "mine", ""),
        ("operator", "account.change", "mine", "api_key, priority, status"),
        ("operator", "account.remove", "mine", ""),
    ]
