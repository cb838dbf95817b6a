"""Agents, bindings and clients over the API: made, changed, gone back to an older version, archived, removed."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from maestro.domain.agents.edits import NewBinding
from maestro.domain.llm.budgets import NewClient
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows

BOB = {"slug": "bob", "name": "Bob", "role": "coder", "systemPrompt": "Be brief.", "tools": ["calculate"]}
HUGE = 10**30
CODE = {"agent": "ada", "platform": "slack", "channel": "C1", "permission": "read_only"}


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def asked(http: httpx.AsyncClient, method: str, path: str, status: int, **options: Any) -> Any:
    """Make a request, check its status, and return the body if there is one."""
    answer = await http.request(method, f"/api{path}", **options)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


# Agents


async def test_an_agent_is_made_shown_and_changed(http: httpx.AsyncClient) -> None:
    made = await asked(http, "POST", "/agents", 201, json=BOB)
    assert (made["version"], made["status"], made["configured"], made["channels"]) == (1, "active", False, [])
    assert (made["tools"], made["skills"], made["allowUsers"], made["memoryScope"]) == (["calculate"], None, None, None)
    assert (made["client"], made["dailyBudgetUsd"], made["voice"], made["quirks"]) == ("", None, "", [])
    change = {"voice": "dry", "tools": None, "version": 1}
    changed = await asked(http, "PATCH", "/agents/bob?reason=too+many", 200, json=change)
    assert (changed["voice"], changed["tools"], changed["systemPrompt"], changed["version"]) == (
        "dry",
        None,
        "Be brief.",
        2,
    )
    assert await asked(http, "GET", "/agents/bob", 200) == changed
    listed = await asked(http, "GET", "/agents", 200)
    assert [(one["slug"], one["version"]) for one in listed["items"]] == [("ada", 1), ("bob", 2)]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "/agents", {"slug": "ada"}, 409, "there is an agent ada already"),
        ("POST", "/agents", {"slug": "Bob"}, 400, "body slug: expected up to 63"),
        ("POST", "/agents", {"slug": "bob", "client": "Acme"}, 400, "client: there is no client 'Acme'"),
        ("POST", "/agents", {"slug": "bob", "sytemPrompt": ""}, 400, "body sytemPrompt: Extra inputs"),
        ("PATCH", "/agents/ada", {"slug": "bob"}, 400, "body slug: Extra inputs"),
        ("PATCH", "/agents/ada", {"name": None}, 400, "body name: Input should be a valid string"),
        ("PATCH", "/agents/ada", {"role": "coder", "version": 9}, 409, "its version is 1, but this change"),
        ("PATCH", "/agents/bob", {}, 404, "there is no agent 'bob'"),
        ("GET", "/agents/ada/versions/7", None, 404, "agent ada has no version 7"),
        ("POST", "/agents/ada/rollback", {"version": 0}, 400, "body version: Input should be greater"),
        ("DELETE", "/agents/bob", None, 404, "there is no agent 'bob'"),
        ("GET", f"/agents/ada/versions/{HUGE}", None, 404, "agent ada has no version 1000"),
        ("GET", f"/agents/ada/versions/{-HUGE}", None, 404, "agent ada has no version -1000"),
        ("POST", "/agents/ada/rollback", {"version": HUGE}, 404, "agent ada has no version 1000"),
        ("PATCH", f"/bindings/{HUGE}", {}, 400, "binding_id: Input should be less than"),
        ("DELETE", f"/bindings/{HUGE}", None, 400, "binding_id: Input should be less than"),
    ],
)
async def test_what_cannot_be_is_refused_with_a_reason(
    http: httpx.AsyncClient, method: str, path: str, body: Any, status: int, said: str
) -> None:
    answer = await asked(http, method, path, status, json=body)
    assert said in answer["message"]


async def test_the_edits_are_listed_compared_and_taken_back(http: httpx.AsyncClient) -> None:
    await asked(http, "POST", "/agents?reason=a+start", 201, json=BOB)
    await asked(http, "PATCH", "/agents/bob", 200, json={"systemPrompt": "Be long."})
    await asked(http, "PATCH", "/agents/bob", 200, json={"model": "gpt-4o", "fallbacks": ["o3"]})
    page = await asked(http, "GET", "/agents/bob/versions?limit=2", 200)
    assert [(one["version"], one["changed"]) for one in page["items"]] == [
        (3, ["model", "fallbacks"]),
        (2, ["systemPrompt"]),
    ]
    rest = await asked(http, "GET", f"/agents/bob/versions?cursor={page['next']}", 200)
    assert [(one["version"], one["actor"], one["reason"]) for one in rest["items"]] == [(1, "operator", "a start")]
    assert rest["next"] is None
    second = await asked(http, "GET", "/agents/bob/versions/2", 200)
    assert second["changes"] == [{"field": "systemPrompt", "before": "Be brief.", "after": "Be long."}]
    assert (second["against"], second["agent"]["systemPrompt"]) == (1, "Be long.")
    third = await asked(http, "GET", "/agents/bob/versions/3?against=1", 200)
    assert [change["field"] for change in third["changes"]] == ["systemPrompt", "model", "fallbacks"]
    back = await asked(http, "POST", "/agents/bob/rollback", 200, json={"version": 1})
    assert (back["version"], back["systemPrompt"], back["model"]) == (4, "Be brief.", "")


async def test_an_archived_agent_comes_back_without_its_channels(http: httpx.AsyncClient) -> None:
    await asked(http, "DELETE", "/agents/ada", 204)
    assert (await asked(http, "GET", "/agents/ada", 200))["status"] == "archived"
    assert (await asked(http, "GET", "/bindings", 200))["items"] == []
    assert (await asked(http, "PATCH", "/agents/ada", 200, json={"status": "active"}))["channels"] == []


async def test_an_agent_is_gone_for_good_only_when_nothing_speaks_of_it(rows: JobRows, http: httpx.AsyncClient) -> None:
    await asked(http, "POST", "/agents", 201, json=BOB)
    await asked(http, "DELETE", "/agents/bob?purge=true", 204)
    await asked(http, "GET", "/agents/bob", 404)
    rows.add()
    refused = await asked(http, "DELETE", "/agents/ada?purge=true", 409)
    assert refused["message"].endswith("Archive it instead.")


async def test_the_last_conductor_goes_only_by_force(http: httpx.AsyncClient) -> None:
    await asked(http, "POST", "/agents", 201, json={"slug": "boss", "role": "conductor"})
    assert "direct messages" in (await asked(http, "DELETE", "/agents/boss", 409))["message"]
    await asked(http, "PATCH", "/agents/boss", 409, json={"role": "assistant"})
    await asked(http, "DELETE", "/agents/boss?force=true", 204)
    await asked(http, "POST", "/agents/boss/rollback", 200, json={"version": 1})
    await asked(http, "PATCH", "/agents/boss", 200, json={"role": "assistant", "force": True})


# Channels


async def test_a_channel_is_bound_changed_and_freed(http: httpx.AsyncClient) -> None:
    made = await asked(http, "POST", "/bindings", 201, json=CODE)
    assert (made["agent"], made["account"], made["permission"], made["busy"]) == ("ada", "default", "read_only", None)
    changed = await asked(http, "PATCH", f"/bindings/{made['id']}", 200, json={"busy": "collect"})
    assert (changed["busy"], changed["permission"]) == ("collect", "read_only")
    assert "belongs to the agent ada already" in (await asked(http, "POST", "/bindings", 409, json=CODE))["message"]
    first = await asked(http, "GET", "/bindings?agent=ada&limit=1", 200)
    rest = await asked(http, "GET", f"/bindings?cursor={first['next']}", 200)
    assert [one["channel"] for one in first["items"] + rest["items"]] == ["code", "C1"]
    await asked(http, "DELETE", f"/bindings/{made['id']}", 204)
    await asked(http, "DELETE", f"/bindings/{made['id']}", 404)
    await asked(http, "GET", "/bindings?agent=nobody", 404)


async def test_a_binding_of_the_configuration_is_not_changed_here(rows: JobRows, http: httpx.AsyncClient) -> None:
    with rows.store.begin() as tx:
        number = tx.agents.set_configured_binding(
            tx.agents.get_agent_by_slug("ada"), NewBinding(platform="web", channel="x")
        ).id
    for method, body in (("PATCH", {"busy": "queue"}), ("DELETE", None)):
        refused = await asked(http, method, f"/bindings/{number}", 409, json=body)
        assert "under channels there" in refused["message"]


# Clients


async def test_a_client_is_made_changed_and_removed(http: httpx.AsyncClient) -> None:
    made = await asked(http, "POST", "/clients", 201, json={"name": "Acme & Sons/EU", "slug": "acme"})
    assert made == {
        "name": "Acme & Sons/EU",
        "slug": "acme",
        "plan": "per_task",
        "configured": False,
        "dailyBudgetUsd": None,
        "weight": 1,
        "spentUsd": 0,
        "reservedUsd": 0,
    }
    refused = await asked(http, "PATCH", "/clients/acme", 400, json={"weight": 0})
    assert "body weight: Input should be greater than or equal to 0.001" in refused["message"]
    changed = await asked(
        http, "PATCH", "/clients/acme", 200, json={"plan": "monthly", "dailyBudgetUsd": 3, "weight": 2.5}
    )
    assert (changed["plan"], changed["dailyBudgetUsd"], changed["weight"]) == ("monthly", 3, 2.5)
    assert await asked(http, "GET", "/clients/Acme%20&%20Sons/EU", 200) == changed
    assert (await asked(http, "GET", "/clients", 200))["items"] == [changed]
    await asked(http, "POST", "/clients", 409, json={"name": "Other", "slug": "acme"})
    await asked(http, "DELETE", "/clients/acme", 204)
    await asked(http, "GET", "/clients/acme", 404)


async def test_a_client_of_the_configuration_is_not_changed_here(rows: JobRows, http: httpx.AsyncClient) -> None:
    with rows.store.begin() as tx:
        tx.users.clients.set_configured(NewClient(name="Acme"))
    for method, body in (("PATCH", {"plan": "monthly"}), ("DELETE", None)):
        assert "change clients there" in (await asked(http, method, "/clients/Acme", 409, json=body))["message"]
