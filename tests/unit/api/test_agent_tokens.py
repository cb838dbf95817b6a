"""Tokens of agents outside: made and revoked on the API, and what opens ``/mcp``."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.edits import AgentChange
from maestro.domain.network import FREE_ATTEMPTS
from tests.support.api_client import BASIC, OTHER_ADDRESS, app_of, client
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent, outside_tools, token_of

TOKENS = "/api/agents/ada/tokens"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    async with client(app_of(rows, outside=outside_tools(rows))) as http:
        yield http


async def knock(http: httpx.AsyncClient, token: str, **options: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    return await http.post("/mcp", headers={**headers, **options.pop("headers", {})}, json=PING, **options)


def audit(rows: JobRows) -> list[tuple[str, str, str]]:
    with rows.store.view() as tx:
        return [
            (entry.actor, entry.action, entry.subject) for entry in reversed(tx.system.audit.list_latest_entries(50))
        ]


async def test_a_token_is_made_shown_once_and_revoked(rows: JobRows, http: httpx.AsyncClient) -> None:
    answer = await http.post(TOKENS, json={"name": "laptop"}, auth=BASIC)
    assert answer.status_code == 201
    made = answer.json()
    assert (await knock(http, made["token"])).status_code == 200
    (listed,) = (await http.get(TOKENS, auth=BASIC)).json()["items"]
    assert (listed["id"], listed["name"], listed["ending"]) == (made["id"], "laptop", made["token"][-4:])
    assert listed["lastUsedAt"] is not None
    assert "token" not in listed
    assert (await http.delete(f"{TOKENS}/{made['id']}", auth=BASIC)).status_code == 204
    assert (await knock(http, made["token"])).status_code == 401
    assert [action for _, action, _ in audit(rows)] == ["token.create", "token.revoke", "token.failed"]


async def test_tokens_that_are_not_there_are_not_found(http: httpx.AsyncClient) -> None:
    assert (await http.delete(f"{TOKENS}/7", auth=BASIC)).status_code == 404
    assert (await http.post("/api/agents/nobody/tokens", json={}, auth=BASIC)).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer"}, {"Authorization": "Basic bWFlc3Rybzp4"}, {"Authorization": "Bearer mst_guess"}],
)
async def test_without_a_token_that_holds_nobody_is_let_in(http: httpx.AsyncClient, headers: dict[str, str]) -> None:
    answer = await http.post("/mcp", json=PING, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (401, "Unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer ")


async def test_not_even_the_password_opens_the_door_for_agents(http: httpx.AsyncClient) -> None:
    assert (await http.post("/mcp", json=PING, auth=BASIC)).status_code == 401


async def test_a_token_opens_nothing_but_its_own_door(rows: JobRows, http: httpx.AsyncClient) -> None:
    answer = await http.get("/api/jobs", headers={"Authorization": f"Bearer {token_of(rows)}"})
    assert answer.status_code == 401


async def test_who_guesses_is_slowed_down_and_noted_and_agents_beside_them_are_not(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    token = token_of(rows)
    answers = [await knock(http, f"mst_{number}") for number in range(FREE_ATTEMPTS + 3)]
    assert [answer.status_code for answer in answers] == [401] * FREE_ATTEMPTS + [429] * 3
    assert int(answers[-1].headers["retry-after"]) > 0
    assert (await knock(http, token)).status_code == 200
    failures = [entry for entry in audit(rows) if entry[1] == "token.failed"]
    assert failures == [("unknown", "token.failed", "127.0.0.1")] * FREE_ATTEMPTS
    async with client(http._transport.app, OTHER_ADDRESS) as elsewhere:  # type: ignore[attr-defined]
        assert (await knock(elsewhere, "mst_x")).status_code == 401


@pytest.mark.parametrize(
    ("status", "code", "error"), [(AgentStatus.PAUSED, 403, "Forbidden"), (AgentStatus.ARCHIVED, 401, "Unauthorized")]
)
async def test_tokens_of_agents_that_are_not_active_do_not_count(
    rows: JobRows, http: httpx.AsyncClient, status: AgentStatus, code: int, error: str
) -> None:
    add_agent(rows, "bob")
    token = token_of(rows, "bob")
    with rows.store.begin() as tx:
        tx.agents.change(tx.agents.get_agent_by_slug("bob"), AgentChange(status=status), "operator")
    answer = await knock(http, token)
    assert (answer.status_code, answer.json()["error"]) == (code, error)
    with rows.store.begin() as tx:
        tx.agents.change(tx.agents.get_agent_by_slug("bob"), AgentChange(status=AgentStatus.ACTIVE), "operator")
    assert (await knock(http, token)).status_code == 200


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Origin": "http://elsewhere.example"}, 403),
        ({"Host": "elsewhere.example"}, 421),
        ({"Content-Type": "text/plain"}, 400),
        ({"Accept": "text/html"}, 406),
        ({"Origin": "http://localhost:8080"}, 200),
    ],
)
async def test_a_page_from_elsewhere_is_refused_even_with_a_token(
    rows: JobRows, http: httpx.AsyncClient, headers: dict[str, str], code: int
) -> None:
    assert (await knock(http, token_of(rows), headers=headers)).status_code == code


async def test_there_are_no_streams_and_no_sessions(rows: JobRows, http: httpx.AsyncClient) -> None:
    headers = {"Authorization": f"Bearer {token_of(rows)}", "Accept": "text/event-stream"}
    assert (await http.get("/mcp", headers=headers)).status_code == 405
    assert (await http.delete("/mcp", headers=headers)).status_code == 405


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"not json",
        b"\xff",
        b"[" * 100_000,
        b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
        b'"ping"',
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [7]}',
    ],
)
async def test_what_is_no_message_is_refused_without_a_word_of_internals(
    rows: JobRows, http: httpx.AsyncClient, body: bytes
) -> None:
    headers = {"Authorization": f"Bearer {token_of(rows)}", "Content-Type": "application/json"}
    answer = await http.post("/mcp", headers=headers, content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert "pydantic" not in answer.text


async def test_any_process_answers_any_request(rows: JobRows, http: httpx.AsyncClient) -> None:
    """A balancer may send the handshake to one and the call to another: neither keeps anything for the other."""
    headers = {"Authorization": f"Bearer {token_of(rows)}", "Accept": "application/json, text/event-stream"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    post = {"name": "chat.post", "arguments": {"text": "hello"}}
    answer = await http.post(
        "/mcp", headers=headers, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    )
    assert answer.json()["result"]["serverInfo"]["name"] == "maestro"
    assert "mcp-session-id" not in answer.headers
    async with client(app_of(rows, outside=outside_tools(rows))) as other:
        told = {**headers, "MCP-Protocol-Version": "2025-11-25"}
        answer = await other.post(
            "/mcp", headers=told, json={"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": post}
        )
    assert answer.json()["result"]["structuredContent"] == {"id": 1, "success": True}


async def test_without_tools_for_agents_outside_there_is_no_door(rows: JobRows) -> None:
    async with client(app_of(rows, outside=None)) as http:
        assert (await knock(http, token_of(rows))).status_code == 404


async def test_a_body_that_is_too_large_is_refused(rows: JobRows, http: httpx.AsyncClient) -> None:
    headers = {"Authorization": f"Bearer {token_of(rows)}", "Content-Type": "application/json"}
    answer = await http.post("/mcp", headers=headers, content=b" " * 1_100_000)
    assert (answer.status_code, answer.json()["error"]) == (413, "TooLarge")
