"""What every request meets first: Host, Origin, strict headers, errors without internals, and a cap on bodies."""

from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from api.guards import OpenRoute
from api.parts import GuardSettings
from maestro.domain.errors import (
    Backlogged,
    ConfigurationError,
    Forbidden,
    InvalidMessage,
    MaestroError,
    PortTaken,
    StoreBusy,
)
from tests.support.api_client import BASIC, SIGNING_KEY, app_of, client
from tests.support.job_rows import JobRows

PRIVATE = "a detail of the inside"


def failing(rows: JobRows, error: Exception) -> FastAPI:
    """Build an app with a route that raises this."""
    app = app_of(rows)
    router = APIRouter(route_class=OpenRoute)

    @router.get("/fails")
    async def fails() -> None:
        raise error

    app.include_router(router)
    return app


def guard(*hosts: str) -> GuardSettings:
    """Return settings with these hosts, and no password."""
    return GuardSettings(SIGNING_KEY, allowed_hosts=frozenset(hosts))


# Hosts


@pytest.mark.parametrize("host", ["localhost:8080", "LOCALHOST", "127.0.0.1:8080", "[::1]:8080", "maestro.lan"])
async def test_our_own_names_are_answered(rows: JobRows, host: str) -> None:
    async with client(app_of(rows, guard=guard("maestro.lan")), headers={"Host": host}) as http:
        assert (await http.get("/api/jobs")).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "evil.example#localhost", "127.0.0.1.nip.io", "192.0.2.1", ""]
)
async def test_a_foreign_host_is_told_what_to_set(rows: JobRows, host: str) -> None:
    async with client(app_of(rows, guard=guard("maestro.lan")), headers={"Host": host}) as http:
        for path in ("/api/jobs", "/healthz", "/login"):
            answer = await http.get(path)
            assert answer.status_code == 421
            assert answer.json()["error"] == "UnknownHost"
            assert "webui.allowedHosts" in answer.json()["message"]
            assert host not in answer.headers["content-security-policy"] or not host


async def test_a_wildcard_bind_answers_plain_addresses_but_no_names(rows: JobRows) -> None:
    async with client(app_of(rows, guard=guard("0.0.0.0"))) as http:
        assert (await http.get("/api/jobs", headers={"Host": "192.0.2.1:8080"})).status_code == 200
        assert (await http.get("/api/jobs", headers={"Host": "evil.example"})).status_code == 421


# Origins


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://localhost:8080.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost:8080", "Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_a_foreign_page_may_change_nothing(rows: JobRows, headers: dict[str, str]) -> None:
    for password, auth in (("", None), (BASIC[1], BASIC)):
        async with client(app_of(rows, password), headers=headers, auth=auth) as http:
            for path in ("/api/web/tickets", "/login", "/api/jobs/x/cancel"):
                answer = await http.post(path)
                assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden"), path
    with rows.store.view() as tx:
        assert not tx.system.audit.list_latest_entries(1)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://localhost:8080"},
        {"Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "https://localhost:8080"},
    ],
)
async def test_our_pages_and_programs_may(rows: JobRows, headers: dict[str, str]) -> None:
    async with client(app_of(rows, ""), headers=headers) as http:
        assert (await http.post("/api/web/tickets")).status_code == 200


async def test_a_foreign_page_gets_no_leave_to_read(rows: JobRows) -> None:
    async with client(app_of(rows, ""), headers={"Origin": "http://evil.example"}) as http:
        answer = await http.get("/api/jobs")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


# Headers


async def test_every_answer_has_the_strict_headers(rows: JobRows) -> None:
    async with client(failing(rows, RuntimeError(PRIVATE))) as http:
        for path in ("/healthz", "/login", "/nowhere", "/api/jobs", "/static/login.css", "/fails"):
            headers = (await http.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "connect-src 'self' ws://localhost:5070 http://localhost:5070;" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cross-origin-opener-policy"] == "same-origin"
            assert headers["referrer-policy"] == "same-origin"
            assert "permissions-policy" in headers


async def test_pages_and_data_are_never_kept(rows: JobRows) -> None:
    async with client(app_of(rows, "")) as http:
        for path in ("/chat", "/api/jobs", "/healthz", "/nowhere", "/"):
            assert (await http.get(path)).headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("base", "changes", "expected"),
    [
        ("https://localhost", {}, "'self' wss://localhost:5070 https://localhost:5070;"),
        ("http://127.0.0.1:9", {"web_port": 7}, "'self' ws://127.0.0.1:7 http://127.0.0.1:7;"),
        ("http://[::1]:9", {}, "'self' ws://[::1]:5070 http://[::1]:5070;"),
        ("http://localhost", {"web_port": 0}, "'self';"),
    ],
)
async def test_pages_may_only_connect_home_and_to_the_web_connector(
    rows: JobRows, base: str, changes: dict[str, Any], expected: str
) -> None:
    async with client(app_of(rows, **changes), base_url=base) as http:
        assert f"connect-src {expected}" in (await http.get("/healthz")).headers["content-security-policy"]


# Errors


async def test_what_does_not_exist_is_json_too(rows: JobRows) -> None:
    async with client(app_of(rows), auth=BASIC) as http:
        answer = await http.get("/nowhere")
        assert (answer.status_code, answer.json()["error"]) == (404, "NotFound")
        answer = await http.put("/api/jobs")
        assert (answer.status_code, answer.json()["error"]) == (405, "MethodNotAllowed")
        assert answer.headers["allow"] == "GET"
        for path in ("/redoc", "/openapi.json"):
            assert (await http.get(path)).status_code == 404


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigurationError("set x"), 400),
        (InvalidMessage("too long"), 400),
        (Forbidden("not you"), 403),
        (Backlogged("later"), 503),
        (StoreBusy("the disk is full"), 503),
    ],
)
async def test_our_errors_say_what_is_wrong(rows: JobRows, error: MaestroError, status: int) -> None:
    async with client(failing(rows, error)) as http:
        answer = await http.get("/fails")
    assert answer.status_code == status
    assert answer.json() == {"error": type(error).__name__, "message": str(error)}


async def test_other_errors_of_ours_say_only_their_fixed_sentence(rows: JobRows) -> None:
    async with client(failing(rows, PortTaken(PRIVATE))) as http:
        answer = await http.get("/fails")
    assert answer.status_code == 500
    assert answer.json() == {"error": "PortTaken", "message": PortTaken.public}


async def test_a_bug_is_logged_and_told_to_nobody(rows: JobRows, capsys: pytest.CaptureFixture[str]) -> None:
    async with client(failing(rows, RuntimeError(PRIVATE))) as http:
        answer = await http.get("/fails")
    assert answer.status_code == 500
    assert answer.json()["error"] == "InternalError"
    assert PRIVATE not in answer.text
    assert "Traceback" not in answer.text
    logged = capsys.readouterr().out
    assert PRIVATE in logged
    assert "/fails" in logged


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/jobs?limit=0", "limit"),
        ("/api/jobs?limit=x", "limit"),
        ("/api/jobs?status=gone", "status"),
        ("/api/jobs?cursor=nonsense", "cursor"),
        ("/api/jobs?stauts=failed", "stauts"),
        ("/api/agents?limit=9999", "limit"),
    ],
)
async def test_a_wrong_query_names_the_field(rows: JobRows, path: str, field: str) -> None:
    async with client(app_of(rows, "")) as http:
        answer = await http.get(path)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert field in answer.json()["message"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "body"),
        (b"{}", "mode"),
        (b'{"mode": "twice"}', "mode"),
        (b'{"mode": "resume", "x": 1}', "x"),
        (b"", "body"),
    ],
)
async def test_a_wrong_body_names_the_field(rows: JobRows, body: bytes, field: str) -> None:
    async with client(app_of(rows, ""), headers={"Content-Type": "application/json"}) as http:
        answer = await http.post("/api/jobs/x/replay", content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert field in answer.json()["message"]


@pytest.mark.parametrize("path", ["/login", "/api/jobs/x/replay"])
async def test_a_huge_body_is_refused(rows: JobRows, path: str) -> None:
    async with client(app_of(rows, "")) as http:
        answer = await http.post(path, content=b"x" * 1_100_000, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.json()["error"] == "TooLarge"


async def test_the_guard_comes_before_the_body(rows: JobRows) -> None:
    async with client(app_of(rows)) as http:
        answer = await http.post("/api/jobs/x/replay", content=b"{", headers={"Content-Type": "application/json"})
    assert answer.status_code == 401


async def test_methods_that_only_read_are_no_changes(rows: JobRows) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app_of(rows, "")), base_url="http://localhost", headers={"Origin": "http://evil"}
    ) as http:
        assert (await http.request("OPTIONS", "/api/jobs")).status_code == 405
