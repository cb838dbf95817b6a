"""Who is let in: every route has one guard, and the password, the cookie and its token do what they promise."""

import asyncio
import base64
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastapi.routing import APIRouter
from structlog.testing import capture_logs

from api.guards import COOKIE, GuardedRoute, RouteGuard
from api.parts import GuardSettings
from api.server import warn_without_password
from tests.support.api_client import BASIC, HOME, OTHER_ADDRESS, PASSWORD, app_of, client
from tests.support.job_rows import JobRows


async def signed_in(http: httpx.AsyncClient) -> str:
    """Log in and return the token of the session; the client keeps the cookie."""
    answer = await http.post("/login", json={"password": PASSWORD})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["csrfToken"])


# A guard of nobody


async def test_a_guard_that_nobody_answers_for_lets_nobody_in(rows: JobRows) -> None:
    class SignedRoute(GuardedRoute):
        guard = RouteGuard.SIGNATURE

    app = app_of(rows, password="")
    router = APIRouter(route_class=SignedRoute)
    router.add_api_route("/tools", lambda: None)
    app.include_router(router)
    async with client(app) as http:
        assert (await http.get("/tools")).status_code == 401


# HTTP Basic


async def test_basic_with_the_right_password_is_let_in(rows: JobRows) -> None:
    async with client(app_of(rows), auth=BASIC) as http:
        assert (await http.get("/api/jobs")).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        "Basic " + base64.b64encode(f"maestro:{PASSWORD}x".encode()).decode(),
        "Basic " + base64.b64encode(f"admin:{PASSWORD}".encode()).decode(),
        "Basic " + base64.b64encode(b"maestro:\xff\xfe").decode(),
        "Basic not base64",
        "Basic",
        f"Bearer {PASSWORD}",
        "",
    ],
)
async def test_anything_else_is_not(rows: JobRows, header: str) -> None:
    async with client(app_of(rows), headers={"Authorization": header}) as http:
        answer = await http.get("/api/jobs")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")


async def test_a_password_of_any_script_works(rows: JobRows) -> None:
    async with client(app_of(rows, password="пароль:密码")) as http:
        header = base64.b64encode("maestro:пароль:密码".encode()).decode()
        assert (await http.get("/api/jobs", headers={"Authorization": f"Basic {header}"})).status_code == 200


async def test_a_script_of_a_page_gets_no_password_box(rows: JobRows) -> None:
    async with client(app_of(rows), headers={"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}) as http:
        answer = await http.get("/api/jobs")
    assert answer.status_code == 401
    assert "www-authenticate" not in answer.headers


async def test_a_wrong_basic_header_is_not_saved_by_a_cookie(rows: JobRows) -> None:
    async with client(app_of(rows)) as http:
        await signed_in(http)
        assert (await http.get("/api/jobs", auth=("maestro", "wrong"))).status_code == 401


# Sessions


async def test_a_login_lets_a_browser_in(rows: JobRows) -> None:
    async with client(app_of(rows), headers={"Origin": HOME}) as http:
        answer = await http.post("/login", data={"password": PASSWORD, "next": "/chat?x=1"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/chat?x=1")
        cookie = answer.headers["set-cookie"]
        assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"))
        assert "Secure" not in cookie
        assert (await http.get("/api/jobs")).status_code == 200


async def test_over_https_the_cookie_never_leaves_it(rows: JobRows) -> None:
    async with client(app_of(rows), base_url="https://localhost:8080") as http:
        answer = await http.post("/login", json={"password": PASSWORD})
    assert "Secure" in answer.headers["set-cookie"]


async def test_a_change_needs_the_token_of_the_session(rows: JobRows) -> None:
    async with client(app_of(rows)) as http, client(app_of(rows)) as other:
        token = await signed_in(http)
        assert (await http.post("/api/web/tickets")).status_code == 403
        assert (await http.post("/api/web/tickets", headers={"X-CSRF-Token": "x"})).status_code == 403
        foreign = await signed_in(other)
        assert (await http.post("/api/web/tickets", headers={"X-CSRF-Token": foreign})).status_code == 403
        assert (await http.post("/api/web/tickets", headers={"X-CSRF-Token": token})).status_code == 200


async def test_a_form_may_carry_the_token_as_a_field(rows: JobRows) -> None:
    async with client(app_of(rows)) as http:
        token = await signed_in(http)
        assert (await http.post("/logout", data={"csrf_token": "x"})).status_code == 403
        assert (await http.post("/logout", data={"csrf_token": token})).status_code == 303


async def test_a_cookie_that_was_touched_is_worth_nothing(rows: JobRows) -> None:
    async with client(app_of(rows)) as http:
        await signed_in(http)
        good = http.cookies[COOKIE]
    session, expires, signature = good.split(".")
    bad = [
        f"{session}.{int(expires) + 9999}.{signature}",
        f"x{session}.{expires}.{signature}",
        f"{session}.{expires}.{signature[:-1]}{'1' if signature.endswith('0') else '0'}",
        f"{session}.{expires}.",
        f"{session}.{expires}",
        "",
        "..",
        "é.1.2",
    ]
    for cookie in bad:
        async with client(app_of(rows), headers={b"Cookie": f"{COOKIE}={cookie}".encode("latin-1")}) as http:
            assert (await http.get("/api/jobs")).status_code == 401, cookie
    async with client(app_of(rows), cookies={COOKIE: good}) as http:
        assert (await http.get("/api/jobs")).status_code == 200


async def test_a_session_ends_after_its_hours(rows: JobRows) -> None:
    async with client(app_of(rows)) as http:
        await signed_in(http)
        rows.clock.go(hours=11.9)
        assert (await http.get("/api/jobs")).status_code == 200
        rows.clock.go(hours=0.2)
        assert (await http.get("/api/jobs")).status_code == 401


async def test_a_restart_logs_nobody_out_but_a_new_password_does(rows: JobRows) -> None:
    async with client(app_of(rows)) as http:
        await signed_in(http)
        cookie = http.cookies[COOKIE]
    async with client(app_of(rows), cookies={COOKIE: cookie}) as http:
        assert (await http.get("/api/jobs")).status_code == 200
    async with client(app_of(rows, password="another"), cookies={COOKIE: cookie}) as http:
        assert (await http.get("/api/jobs")).status_code == 401


async def test_a_copied_cookie_does_not_survive_the_logout(rows: JobRows) -> None:
    app = app_of(rows)
    async with client(app) as http:
        token = await signed_in(http)
        copied = http.cookies[COOKIE]
        answer = await http.post("/logout", headers={"X-CSRF-Token": token})
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?left=true")
        assert COOKIE not in http.cookies
    # The other one is what another process, or this one after a restart, makes of the same store.
    for at in (app, app_of(rows)):
        async with client(at, cookies={COOKIE: copied}) as http:
            assert (await http.get("/api/jobs")).status_code == 401


async def test_a_logout_holds_at_once_in_a_process_that_knew_the_login(rows: JobRows) -> None:
    here, there = app_of(rows), app_of(rows)
    async with client(here) as http:
        token = await signed_in(http)
        copied = {COOKIE: http.cookies[COOKIE]}
        async with client(there, cookies=copied) as elsewhere:
            assert (await elsewhere.get("/api/jobs")).status_code == 200
            await http.post("/logout", headers={"X-CSRF-Token": token})
            assert (await elsewhere.get("/api/jobs")).status_code == 401


@pytest.mark.parametrize(
    ("page", "back"),
    [
        (f"{HOME}/accounts?edit=main", "/accounts?edit=main"),
        (f"{HOME}/accounts/add", "/"),
        ("https://elsewhere.example/accounts", "/"),
        (f"{HOME}//elsewhere.example", "/"),
        ("http://[", "/"),
    ],
)
async def test_a_form_that_comes_after_the_login_is_over_leads_to_it_and_back(
    rows: JobRows, page: str, back: str
) -> None:
    browser = {"Accept": "text/html", "Referer": page}
    async with client(app_of(rows)) as http:
        answer = await http.post("/accounts/disable", data={"name": "main"}, headers=browser)
        assert answer.status_code == 303
        asked = parse_qs(urlsplit(answer.headers["location"]).query)
        assert asked == {"next": [back], "unsent": ["true"]}
        assert "the form was not applied" in (await http.get(answer.headers["location"])).text
        assert "the form was not applied" not in (await http.get("/login")).text
        program = await http.post("/accounts/disable", data={"name": "main"})
    assert program.status_code == 401


async def test_only_a_page_of_ours_makes_the_browser_forget(rows: JobRows) -> None:
    async with client(app_of(rows)) as http:
        for site, forgets in (("same-origin", True), ("cross-site", False)):
            page = await http.get("/login?left=true", headers={"Sec-Fetch-Site": site})
            assert ("login.js" in page.text) is forgets
        assert "login.js" not in (await http.get("/login")).text


async def test_the_audit_log_knows_who_came_and_who_tried(rows: JobRows) -> None:
    async with client(app_of(rows), OTHER_ADDRESS) as http:
        await http.get("/api/jobs", auth=("maestro", "wrong"))
        token = await signed_in(http)
        await http.post("/logout", headers={"X-CSRF-Token": token})
    with rows.store.view() as tx:
        entries = [
            (entry.actor, entry.action, entry.origin) for entry in reversed(tx.system.audit.list_latest_entries(10))
        ]
    assert entries == [
        ("unknown", "login.failed", OTHER_ADDRESS),
        ("operator", "login", OTHER_ADDRESS),
        ("operator", "logout", OTHER_ADDRESS),
    ]


# Guessing


async def guess(http: httpx.AsyncClient, times: int, password: str = "wrong") -> list[int]:
    """Send a password so many times with HTTP Basic and return the answers' statuses."""
    return [(await http.get("/api/jobs", auth=("maestro", password))).status_code for _ in range(times)]


async def test_five_wrong_passwords_lock_an_address_for_wrong_ones_longer_each_time(rows: JobRows) -> None:
    async with client(app_of(rows), OTHER_ADDRESS) as http:
        assert await guess(http, 5) == [401] * 5
        answer = await http.get("/api/jobs", auth=("maestro", "wrong"))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "10")
        assert answer.json()["error"] == "TooManyAttempts"
        rows.clock.go(seconds=10)
        assert await guess(http, 1) == [401]
        assert (await http.get("/api/jobs", auth=("maestro", "wrong"))).headers["retry-after"] == "20"


async def test_the_right_password_gets_in_while_its_address_is_locked_and_resets_nothing(rows: JobRows) -> None:
    async with client(app_of(rows), OTHER_ADDRESS) as http:
        await guess(http, 5)
        assert await guess(http, 1, PASSWORD) == [200]
        assert (await http.post("/login", json={"password": PASSWORD})).status_code == 200
        wrong = await http.post("/login", data={"password": "wrong"})
        assert (wrong.status_code, wrong.headers["retry-after"]) == (429, "10")
        assert "Too many wrong passwords" in wrong.text


async def test_a_session_goes_on_while_its_address_is_locked(rows: JobRows) -> None:
    app = app_of(rows)
    async with client(app) as browser, client(app) as attacker:
        await signed_in(browser)
        await guess(attacker, 5)
        assert (await browser.get("/api/jobs")).status_code == 200


async def test_guesses_at_once_are_all_counted(rows: JobRows) -> None:
    async with client(app_of(rows), OTHER_ADDRESS) as http:
        answers = await asyncio.gather(*(guess(http, 1) for _ in range(30)))
    assert [status for (status,) in answers].count(401) == 5


async def test_guesses_from_many_addresses_lock_nobody_out(rows: JobRows) -> None:
    app = app_of(rows)
    for number in range(25):
        async with client(app, f"198.51.100.{number}") as http:
            assert await guess(http, 4) == [401] * 4
    async with client(app, OTHER_ADDRESS) as http:
        assert await guess(http, 1) == [429]  # one more would be one more write
        assert await guess(http, 1, PASSWORD) == [200]
        rows.clock.go(minutes=1)
        assert await guess(http, 1) == [401]


async def test_a_program_with_credentials_of_another_kind_locks_nobody_out(rows: JobRows) -> None:
    async with client(app_of(rows), OTHER_ADDRESS) as http:
        for _ in range(10):
            assert (await http.get("/api/jobs", headers={"Authorization": "Bearer token"})).status_code == 401
        assert await guess(http, 1, PASSWORD) == [200]


async def test_the_addresses_of_one_ipv6_network_count_as_one(rows: JobRows) -> None:
    app = app_of(rows)
    for number in range(5):
        async with client(app, f"2001:db8::{number}") as http:
            assert await guess(http, 1) == [401]
    async with client(app, "2001:db8::ffff") as http:
        assert await guess(http, 1) == [429]


# Without a password


async def test_without_a_password_everything_is_open(rows: JobRows) -> None:
    async with client(app_of(rows, password="")) as http:
        for path in ("/api/jobs", "/readyz", "/chat", "/api/openapi.json"):
            assert (await http.get(path)).status_code == 200, path
        assert (await http.post("/api/web/tickets")).status_code == 200
        assert (await http.get("/login")).headers["location"] == "/"


def test_a_warning_is_logged_only_without_a_password() -> None:
    with capture_logs() as logs:
        warn_without_password(GuardSettings(signing_key=b"", password=""))
        warn_without_password(GuardSettings(signing_key=b"", password="a password"))
    assert [line["event"].partition(",")[0] for line in logs] == ["security: no password is set"]


async def test_without_a_password_the_chat_says_so(rows: JobRows) -> None:
    async with client(app_of(rows, password="")) as http:
        assert "No password is set" in (await http.get("/chat")).text
    async with client(app_of(rows), auth=BASIC) as http:
        assert "No password is set" not in (await http.get("/chat")).text
