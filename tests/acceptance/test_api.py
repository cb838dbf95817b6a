"""The REST API and the pages, as programs and browsers use them."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.parts import AgentChat
from connectors.base import IdentityRole
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import JobKind, JobStatus
from maestro.operations.jobs import JobOperations
from maestro.serving import ListenAddress, Server, listen_on_address, serve_until_cancelled, uvicorn_config
from tests.support.api_client import BASIC, HOME, PASSWORD, FixedHealth, app_of, client, no_temporal
from tests.support.job_rows import SECRET_ANSWER, JobRows
from tests.support.outside import chat_of

Json = dict[str, Any]


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


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    """Serve an app on a free port, over real sockets, and give its address."""
    sockets = listen_on_address(ListenAddress("127.0.0.1", 0, section="webui", option="--port"))
    started = asyncio.Event()

    async def serving() -> None:
        started.set()

    task = asyncio.create_task(serve_until_cancelled(Server(uvicorn_config(app), serving), sockets))
    await started.wait()
    yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def ids(http: httpx.AsyncClient, query: str = "") -> list[str]:
    """Return the ids of the jobs that a query finds."""
    answer = await http.get(f"/api/jobs?{query}")
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["items"]]


# Health


async def test_healthz_says_only_that_the_process_lives(rows: JobRows) -> None:
    health = FixedHealth(store="broken")
    async with client(app_of(rows, health=health)) as http:
        answer = await http.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_readyz_names_what_does_not_work(rows: JobRows, http: httpx.AsyncClient) -> None:
    checks = {"store": "ok", "temporal": "ok", "worker": "ok"}
    answer = await http.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "checks": checks})
    health = FixedHealth(store="ok", temporal="localhost:7233 does not answer", worker="ok")
    async with client(app_of(rows, health=health), auth=BASIC) as other:
        answer = await other.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "not ready"
    assert answer.json()["checks"]["temporal"] == "localhost:7233 does not answer"


# The list of jobs


async def test_jobs_come_newest_first_in_pages_that_miss_nothing(rows: JobRows, http: httpx.AsyncClient) -> None:
    added = [rows.add(f"message {number}") for number in range(7)]
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await http.get("/api/jobs", params={"limit": 3, **({"cursor": cursor} if cursor else {})})).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next"]
        rows.end(seen[-1], JobStatus.FAILED, "ProviderDown")  # whatever happens between two pages
        rows.add("a later one")
    assert seen == added[::-1]


async def test_jobs_of_the_same_moment_are_on_one_page_each(rows: JobRows, http: httpx.AsyncClient) -> None:
    added = []
    for kind in JobKind:
        rows.clock.go(seconds=-1)
        added.append(rows.add(kind=kind))
    first = (await http.get("/api/jobs?limit=3")).json()
    second = (await http.get("/api/jobs", params={"limit": 3, "cursor": first["next"]})).json()
    assert sorted(job["id"] for job in first["items"] + second["items"]) == sorted(added)
    assert second["next"] is None


async def test_jobs_are_found_by_what_they_are(rows: JobRows, http: httpx.AsyncClient) -> None:
    plain = rows.add()
    failed = rows.failed(error="RateLimited")
    cancelled = rows.end(rows.add(), JobStatus.CANCELLED)
    cron = rows.add(kind=JobKind.CRON)
    elsewhere = rows.add(platform="slack", agent=None)
    assert await ids(http, "status=failed") == [failed]
    assert await ids(http, "status=failed&status=cancelled") == [cancelled, failed]
    assert await ids(http, "kind=cron") == [cron]
    assert await ids(http, "platform=slack") == [elsewhere]
    assert await ids(http, "error=RateLimited") == [failed]
    assert await ids(http, "agent=ada&status=pending") == [cron, plain]
    assert await ids(http, "agent=nobody") == []


async def test_jobs_are_found_by_a_part_of_their_text(rows: JobRows, http: httpx.AsyncClient) -> None:
    deploy = rows.add("please DEPLOY the 100% build")
    other = rows.add("something else", user="Katherine")
    failed = rows.failed(reason="the quota is used up")
    assert await ids(http, "q=deploy") == [deploy]
    assert await ids(http, "q=katherine") == [other]
    assert await ids(http, "q=quota") == [failed]
    assert await ids(http, f"q={other[-6:]}") == [other]
    assert await ids(http, "q=100%25") == [deploy]
    assert await ids(http, "q=%25") == [deploy]
    assert await ids(http, "q='; drop table queue; --") == []


async def test_a_line_of_the_list_says_what_it_is_about(rows: JobRows, http: httpx.AsyncClient) -> None:
    rows.failed("first line\nsecond  line " + "x" * 500)
    line = (await http.get("/api/jobs")).json()["items"][0]
    assert line["excerpt"].startswith("first line second line xxx")
    assert len(line["excerpt"]) == 140
    assert (line["kind"], line["status"], line["agent"], line["user"]) == ("message", "failed", "ada", "Grace")
    assert (line["platform"], line["channel"], line["attempts"]) == ("web", "general", 0)
    assert (line["error"], line["reason"]) == ("ProviderDown", "the provider is down")
    assert line["createdAt"].startswith("2026-11-20T08:00:01")
    assert line["completedAt"]


# One job


async def test_a_job_shows_every_attempt_at_every_step(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    rows.worked(job_id)
    job = (await http.get(f"/api/jobs/{job_id}")).json()
    steps = [(step["step"], step["attempt"], step["state"], step["error"]) for step in job["steps"]]
    assert steps == [
        ("context", 1, "done", ""),
        ("model-1", 1, "interrupted", ""),
        ("model-1", 2, "failed", "RateLimited"),
        ("model-1", 3, "running", ""),
    ]
    first, _, failed, running = job["steps"]
    assert (first["activity"], first["run"], first["durationMs"]) == ("build_context", 1, 250)
    assert failed["detail"] == "429 from the provider"
    assert (running["finishedAt"], running["durationMs"]) == (None, None)


async def test_a_job_shows_its_model_calls_and_what_they_cost(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    rows.worked(job_id)
    job = (await http.get(f"/api/jobs/{job_id}")).json()
    assert [(call["number"], call["attempt"], call["state"]) for call in job["calls"]] == [
        (1, 1, "interrupted"),
        (1, 2, "failed"),
        (1, 3, "answered"),
    ]
    answered = job["calls"][-1]
    assert (answered["provider"], answered["model"], answered["account"]) == ("anthropic", "claude-haiku-4-5", "main")
    assert (answered["inputTokens"], answered["outputTokens"], answered["durationMs"]) == (120, 30, 900)
    assert answered["costUsd"] == job["costUsd"] == 0.0025
    assert job["interruptedCostUsd"] == 0.0012, "counted apart"


async def test_a_job_shows_how_what_was_sent_begins_and_a_list_does_not(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    rows.worked(job_id)
    answer = await http.get(f"/api/jobs/{job_id}")
    chunks = [
        (chunk["seq"], chunk["state"], chunk["attempts"], chunk["platformMessageId"])
        for chunk in answer.json()["deliveries"]
    ]
    assert chunks == [(1, "sent", 1, "m-1"), (2, "sending", 1, "")]
    assert SECRET_ANSWER not in (await http.get("/api/jobs")).text


async def test_a_job_links_to_its_workflow(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.add()
    job = (await http.get(f"/api/jobs/{job_id}")).json()
    assert job["temporalUrl"] == f"http://localhost:8233/namespaces/default/workflows/{job_id}"
    async with client(app_of(rows, jobs=JobOperations(rows.store, no_temporal)), auth=BASIC) as other:
        assert (await other.get(f"/api/jobs/{job_id}")).json()["temporalUrl"] is None


async def test_a_job_that_does_not_exist_is_not_found(http: httpx.AsyncClient) -> None:
    for path in ("/api/jobs/nope", "/api/jobs/message-%27%20or%201=1"):
        answer = await http.get(path)
        assert (answer.status_code, answer.json()["error"]) == (404, "NotFound")
    for action, body in (("replay", {"mode": "resume"}), ("cancel", None)):
        answer = await http.post(f"/api/jobs/nope/{action}", json=body)
        assert (answer.status_code, answer.json()["error"]) == (404, "NotFound")


# What an operator does


async def test_resume_runs_the_same_job_again(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.failed()
    answer = await http.post(f"/api/jobs/{job_id}/replay", json={"mode": "resume"})
    assert (answer.status_code, answer.json()) == (200, {"id": job_id})
    job = (await http.get(f"/api/jobs/{job_id}")).json()
    assert (job["status"], job["run"], job["error"]) == ("pending", 2, "")


async def test_restart_makes_a_new_job_and_links_the_two(rows: JobRows, http: httpx.AsyncClient) -> None:
    job_id = rows.end(rows.add(), JobStatus.COMPLETED)
    again = (await http.post(f"/api/jobs/{job_id}/replay", json={"mode": "restart"})).json()["id"]
    assert again != job_id
    assert (await http.get(f"/api/jobs/{again}")).json()["restartedFrom"] == job_id
    assert (await http.get(f"/api/jobs/{job_id}")).json()["restartedBy"] == [again]


async def test_what_does_not_fit_is_a_conflict_that_says_why(rows: JobRows, http: httpx.AsyncClient) -> None:
    pending, completed = rows.add(), rows.end(rows.add(), JobStatus.COMPLETED)
    for path, body, word in (
        (f"{pending}/replay", {"mode": "resume"}, "pending"),
        (f"{completed}/replay", {"mode": "resume"}, "restart"),
        (f"{completed}/cancel", None, "completed"),
    ):
        answer = await http.post(f"/api/jobs/{path}", json=body)
        assert (answer.status_code, answer.json()["error"]) == (409, "Conflict")
        assert word in answer.json()["message"]


async def test_cancel_stops_a_job_and_says_where_it_stands(rows: JobRows, http: httpx.AsyncClient) -> None:
    waiting, running = rows.add(), rows.add()
    rows.worked(running)
    assert (await http.post(f"/api/jobs/{waiting}/cancel")).json() == {"id": waiting, "status": "cancelled"}
    assert (await http.post(f"/api/jobs/{running}/cancel")).json() == {"id": running, "status": "running"}
    with rows.store.view() as tx:
        assert tx.jobs.get(running).stop_requested


async def test_the_audit_log_says_who_did_it(rows: JobRows, http: httpx.AsyncClient) -> None:
    failed, waiting = rows.failed(), rows.add()
    await http.post(f"/api/jobs/{failed}/replay", json={"mode": "resume"})
    await http.post(f"/api/jobs/{waiting}/cancel")
    with rows.store.view() as tx:
        entries = [
            (entry.actor, entry.action, entry.subject) for entry in reversed(tx.system.audit.list_latest_entries(10))
        ]
    assert entries == [("operator", "job.resume", failed), ("operator", "job.cancel", waiting)]


# Agents


async def test_agents_and_their_channels(http: httpx.AsyncClient) -> None:
    page = (await http.get("/api/agents")).json()
    assert [agent["slug"] for agent in page["items"]] == ["ada"]
    assert page["next"] is None
    agent = (await http.get("/api/agents/ada")).json()
    assert (agent["name"], agent["status"], agent["systemPrompt"]) == ("Ada", "active", "Be brief.")
    (binding,) = agent["channels"]
    assert (binding["platform"], binding["channel"], binding["permission"]) == ("web", "code", "full")
    assert (await http.get("/api/agents/nobody")).json()["error"] == "NotFound"


# Tickets for the web connector (docs/decisions.md: web identity)


async def test_a_ticket_lets_the_operator_in_once_for_a_minute(rows: JobRows, http: httpx.AsyncClient) -> None:
    first = (await http.post("/api/web/tickets")).json()["ticket"]
    second = (await http.post("/api/web/tickets")).json()["ticket"]
    assert re.fullmatch(r"[\w-]{43}", first)
    assert first != second
    with rows.store.begin() as tx:
        found = tx.users.take_ticket(first)
        assert found is not None
        assert (found.user_id, found.user_name, found.role) == ("operator", "operator", IdentityRole.OWNER)
        assert found.digest == hashlib.sha256(first.encode()).hexdigest()
    rows.clock.go(seconds=60)
    with rows.store.begin() as tx:
        assert tx.users.take_ticket(first) is None
        assert tx.users.take_ticket(second) is None


# The description


async def test_the_description_is_complete(rows: JobRows) -> None:
    async with client(app_of(rows, chat=AgentChat(chat_of(rows.store))), auth=BASIC) as http:
        described: Json = (await http.get("/api/openapi.json")).json()
    assert described["openapi"].startswith("3.1")
    assert set(described["paths"]) == {
        "/api/accounts",
        "/api/accounts/{name}",
        "/api/agents",
        "/api/agents/{slug}",
        "/api/agents/{slug}/memory",
        "/api/agents/{slug}/memory/facts",
        "/api/agents/{slug}/memory/facts/{number}",
        "/api/agents/{slug}/memory/state/{key}",
        "/api/agents/{slug}/rollback",
        "/api/agents/{slug}/versions",
        "/api/agents/{slug}/versions/{number}",
        "/api/agents/{slug}/tokens",
        "/api/agents/{slug}/tokens/{token_id}",
        "/api/audit",
        "/api/audit.csv",
        "/api/bindings",
        "/api/bindings/{binding_id}",
        "/api/chat",
        "/api/clients",
        "/api/clients/{name}",
        "/api/connectors",
        "/api/connectors/disabled-channels",
        "/api/connectors/{platform}/{account}",
        "/api/connectors/{platform}/{account}/channels/{channel}/enable",
        "/api/conversations",
        "/api/conversations/search",
        "/api/conversations/{conversation_id}",
        "/api/conversations/{conversation_id}/close",
        "/api/conversations/{conversation_id}/export.json",
        "/api/conversations/{conversation_id}/export.md",
        "/api/conversations/{conversation_id}/messages",
        "/api/ignored",
        "/api/jobs",
        "/api/jobs/batches",
        "/api/jobs/batches/{batch_id}",
        "/api/jobs/batches/{batch_id}/items",
        "/api/jobs/batches/{batch_id}/stop",
        "/api/jobs/cancel",
        "/api/jobs/counts",
        "/api/jobs/errors",
        "/api/jobs/replay",
        "/api/jobs/{job_id}",
        "/api/jobs/{job_id}/calls",
        "/api/jobs/{job_id}/calls/{call_id}/prompt",
        "/api/jobs/{job_id}/cancel",
        "/api/jobs/{job_id}/replay",
        "/api/openapi.json",
        "/api/pairings",
        "/api/pairings/invite",
        "/api/pairings/{pairing}/approve",
        "/api/pairings/{pairing}/refuse",
        "/api/people",
        "/api/people/{person}",
        "/api/questions",
        "/api/questions/{question_id}",
        "/api/questions/{question_id}/answer",
        "/api/settings",
        "/api/skills",
        "/api/skills/try",
        "/api/skills/{slug}",
        "/api/skills/{slug}/text",
        "/api/usage",
        "/api/usage.csv",
        "/api/usage/budgets",
        "/api/usage/latency",
        "/api/usage/latency.csv",
        "/api/web/tickets",
        "/api/schedules",
        "/api/schedules/preview",
        "/api/schedules/{ref}",
        "/api/schedules/{ref}/backfill",
        "/api/schedules/{ref}/trigger",
        "/api/webhooks",
        "/api/webhooks/{path}",
        "/api/webhooks/{path}/rotate",
        "/healthz",
        "/hooks/{path}",
        "/mcp",
        "/metrics",
        "/readyz",
    }
    for path, operations in described["paths"].items():
        for operation in operations.values():
            assert operation["description"], path
            assert "default" in operation["responses"], path
            assert "422" not in operation["responses"], path
            assert bool(operation.get("security")) is (path != "/healthz"), path
    assert set(described["components"]["securitySchemes"]) == {"password", "login", "token", "signature"}
    names = {parameter["name"] for parameter in described["paths"]["/api/jobs"]["get"]["parameters"]}
    assert names == {*JobFilter.model_fields, "limit", "cursor"}
    assert {"status", "since", "until", "channel", "client", "conversation", "step", "reason", "batch", "q"} < names


# Pages


async def test_the_root_is_the_overview_which_leads_to_the_chat(http: httpx.AsyncClient) -> None:
    answer = await http.get("/")
    assert answer.status_code == 200
    assert 'href="/chat"' in answer.text
    page = await http.get("/chat")
    assert page.headers["content-type"].startswith("text/html")
    assert 'data-web-url="ws://localhost:5070"' in page.text


async def test_a_person_who_is_not_logged_in_is_led_to_the_login_and_back(rows: JobRows) -> None:
    async with client(app_of(rows), headers={"Accept": "text/html,*/*"}) as http:
        answer = await http.get("/chat?with=ada")
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fchat%3Fwith%3Dada")
        page = await http.get(answer.headers["location"])
        assert 'name="next" value="/chat?with=ada"' in page.text
        answer = await http.post("/login", data={"user": "maestro", "password": PASSWORD, "next": "/chat?with=ada"})
        assert answer.headers["location"] == "/chat?with=ada"
        page = await http.get("/chat")
        assert re.search(r'name="csrf-token" content="[0-9a-f]{64}"', page.text)
        assert (await http.get("/login")).headers["location"] == "/"


async def test_a_wrong_password_is_told_on_the_page(rows: JobRows) -> None:
    async with client(app_of(rows)) as http:
        answer = await http.post("/login", data={"password": "wrong", "next": '"><script>alert(1)</script>'})
        assert answer.status_code == 401
        assert "The user or the password is wrong." in answer.text
        assert "<script>alert" not in answer.text
        assert "set-cookie" not in answer.headers
        for body in (b"[]", b"{", b"{}", b"\xff"):
            answer = await http.post("/login", content=body, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")


@pytest.mark.parametrize("elsewhere", ["//evil.example", "/\\evil.example", "https://evil.example", "evil", "/\tx", ""])
async def test_a_login_never_leads_elsewhere(rows: JobRows, elsewhere: str) -> None:
    async with client(app_of(rows)) as http:
        answer = await http.post("/login", data={"password": PASSWORD, "next": elsewhere})
    assert answer.headers["location"] == "/"


async def test_style_sheets_and_scripts_have_addresses_that_change_with_them(rows: JobRows) -> None:
    async with client(app_of(rows)) as http:
        page = (await http.get("/login")).text
        addresses = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
        assert addresses
        for address in addresses:
            answer = await http.get(address)
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"], address
        plain = await http.get("/static/login.css")
        assert plain.headers["cache-control"] == "no-cache"
        again = await http.get("/static/login.css", headers={"If-None-Match": plain.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        for path in ("/static/", "/static/../pages.py", "/static/%2e%2e/pages.py", "/static/nope.js"):
            assert (await http.get(path)).status_code == 404


# Over real sockets


async def test_the_same_over_real_sockets(rows: JobRows) -> None:
    job_id = rows.failed()
    async with served(app_of(rows)) as url, httpx.AsyncClient(base_url=url) as http:
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        assert (await http.get("/api/jobs")).status_code == 401
        token = (await http.post("/login", json={"password": PASSWORD})).json()["csrfToken"]
        path = f"/api/jobs/{job_id}/replay"
        assert (await http.post(path, json={"mode": "resume"})).status_code == 403
        headers = {"X-CSRF-Token": token, "Origin": url}
        assert (await http.post(path, json={"mode": "resume"}, headers=headers)).json() == {"id": job_id}
        assert (await http.post(path, json={"mode": "resume"}, headers={**headers, "Origin": HOME})).status_code == 403


async def test_many_requests_at_once_are_answered(rows: JobRows) -> None:
    job_id = rows.add()
    rows.worked(job_id)
    async with served(app_of(rows)) as url, httpx.AsyncClient(base_url=url, auth=BASIC, timeout=30) as http:
        reads = [http.get(f"/api/jobs/{job_id}") for _ in range(100)]
        writes = [http.post("/api/web/tickets") for _ in range(100)]
        answers = await asyncio.gather(*reads, *writes)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["ticket"] for answer in answers[100:]}) == 100
