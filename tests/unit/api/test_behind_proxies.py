"""Behind a proxy of ours: throttling, cookies, addresses and the audit log go by who really asks."""

import pytest
from fastapi import APIRouter, FastAPI

from api.guards import COOKIE, OpenRoute, Parts
from api.parts import GuardSettings
from maestro.domain.network import TrustedProxies
from tests.support.api_client import OTHER_ADDRESS, PASSWORD, SIGNING_KEY, app_of, client
from tests.support.job_rows import JobRows

PROXY = "10.0.0.5"
HSTS = "strict-transport-security"


@pytest.fixture
def app(rows: JobRows) -> FastAPI:
    """Build an app behind a proxy."""
    guard = GuardSettings(SIGNING_KEY, PASSWORD, trusted_proxies=TrustedProxies([PROXY]))
    return app_of(rows, guard=guard)


def for_whom(address: str, scheme: str = "https") -> dict[str, str]:
    """Return what a proxy adds."""
    return {"X-Forwarded-For": address, "X-Forwarded-Proto": scheme}


async def test_one_client_of_a_proxy_does_not_lock_out_the_others(app: FastAPI) -> None:
    async with client(app, PROXY) as http:
        for _ in range(5):
            await http.get("/api/jobs", auth=("maestro", "wrong"), headers=for_whom(OTHER_ADDRESS))
        for address, status in ((OTHER_ADDRESS, 429), ("198.51.100.7", 401)):
            answer = await http.get("/api/jobs", auth=("maestro", "wrong"), headers=for_whom(address))
            assert answer.status_code == status


async def test_who_is_no_proxy_of_ours_cannot_hide(app: FastAPI) -> None:
    async with client(app, OTHER_ADDRESS) as http:
        for number in range(5):
            await http.get("/api/jobs", auth=("maestro", "wrong"), headers=for_whom(f"198.51.100.{number}"))
        answer = await http.get("/api/jobs", auth=("maestro", "wrong"), headers=for_whom("198.51.100.7"))
        assert answer.status_code == 429
        assert HSTS not in answer.headers


async def test_a_browser_that_came_over_https_stays_there(app: FastAPI) -> None:
    async with client(app, PROXY, headers=for_whom(OTHER_ADDRESS)) as http:
        answer = await http.post("/login", data={"password": PASSWORD}, headers={"Origin": "https://localhost:8080"})
        assert (answer.status_code, answer.headers[HSTS]) == (303, "max-age=31536000")
        cookie = answer.headers["set-cookie"]
        assert all(word in cookie for word in (COOKIE, "Secure", "HttpOnly", "SameSite=strict"))
        page = await http.get("/chat", headers={"Cookie": cookie.partition(";")[0]})
        assert "wss://localhost:5070" in page.headers["content-security-policy"]
    async with client(app, PROXY, headers=for_whom(OTHER_ADDRESS, "http")) as http:
        answer = await http.post("/login", data={"password": PASSWORD})
        assert "Secure" not in answer.headers["set-cookie"]
        assert HSTS not in answer.headers


async def test_entries_tell_the_address_whatever_thread_writes_them(rows: JobRows, app: FastAPI) -> None:
    router = APIRouter(route_class=OpenRoute)

    @router.post("/sync")
    def in_a_thread(parts: Parts) -> None:
        with parts.store.begin() as tx:
            tx.system.audit.add_entry("somebody", "sync")

    app.include_router(router)
    async with client(app, PROXY, headers=for_whom(OTHER_ADDRESS)) as http:
        await http.post("/sync")
        job = rows.add()
        # An async route: its change is made by asyncio.to_thread, behind JobControl.
        cancelled = await http.post(f"/api/jobs/{job}/cancel", auth=("maestro", PASSWORD))
        assert cancelled.status_code == 200
    with rows.store.begin() as tx:
        tx.system.audit.add_entry("maestro", "beside it")
    with rows.store.view() as tx:
        entries = [(entry.action, entry.origin) for entry in reversed(tx.system.audit.list_latest_entries(5))]
    assert entries == [("sync", OTHER_ADDRESS), ("job.cancel", OTHER_ADDRESS), ("beside it", "")]
