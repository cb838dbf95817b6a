"""People who only look: the second password, on the login page and over HTTP Basic."""

import httpx
import pytest

from api.guards import COOKIE
from api.parts import GuardSettings
from tests.support.api_client import (
    BASIC,
    OTHER_ADDRESS,
    PASSWORD,
    SIGNING_KEY,
    VIEWER,
    VIEWER_PASSWORD,
    app_of,
    client,
)
from tests.support.job_rows import JobRows


def guard(password: str = PASSWORD, viewer: str = VIEWER_PASSWORD) -> GuardSettings:
    """Return settings with these passwords."""
    return GuardSettings(SIGNING_KEY, password, viewer_password=viewer)


async def logged_in(http: httpx.AsyncClient, password: str = VIEWER_PASSWORD) -> dict[str, str]:
    """Log in as the form does, and return the header that changes need."""
    assert (await http.post("/login", data={"user": "maestro", "password": password})).status_code == 303
    page = (await http.get("/schedules")).text
    return {"X-CSRF-Token": page.partition('name="csrf-token" content="')[2].partition('"')[0]}


async def test_the_password_on_the_login_page_says_who_somebody_is(rows: JobRows) -> None:
    for password, role, status in ((PASSWORD, "operator", 200), (VIEWER_PASSWORD, "viewer", 403)):
        async with client(app_of(rows), OTHER_ADDRESS) as http:
            header = await logged_in(http, password)
            assert (await http.post("/api/web/tickets", headers=header)).status_code == status
            assert (await http.get("/api/jobs")).status_code == 200
        with rows.store.view() as tx:
            login = next(entry for entry in tx.system.audit.list_latest_entries(5) if entry.action == "login")
        assert (login.actor, login.origin) == (role, OTHER_ADDRESS)


async def test_a_viewer_asks_what_would_be_and_logs_out(rows: JobRows) -> None:
    app = app_of(rows)
    async with client(app) as http:
        header = await logged_in(http)
        copied = http.cookies[COOKIE]
        previewed = await http.post("/api/schedules/preview", json={"schedule": "every 5 m"}, headers=header)
        assert (previewed.status_code, len(previewed.json()["nextRuns"])) == (200, 5)
        assert (await http.post("/api/schedules/preview", json={"schedule": "every 5 m"})).status_code == 403
        assert (await http.post("/logout", headers=header)).status_code == 303
    async with client(app, cookies={COOKIE: copied}) as http:
        assert (await http.get("/api/jobs")).status_code == 401
    with rows.store.view() as tx:
        entries = [(entry.actor, entry.action, entry.detail) for entry in tx.system.audit.list_latest_entries(2)]
    assert entries[0] == ("viewer", "logout", "")
    assert entries[1][:2] == ("viewer", "refused")
    assert "X-CSRF-Token" in entries[1][2]


async def test_a_page_says_that_it_is_only_for_looking(rows: JobRows) -> None:
    app = app_of(rows)
    async with client(app, auth=VIEWER) as http:
        chat, jobs = (await http.get("/chat")).text, (await http.get("/schedules")).text
    assert "Viewers cannot use the chat" in chat
    assert "chat.js" not in chat
    assert "Read only" in jobs
    async with client(app, auth=BASIC) as http:
        assert "chat.js" in (await http.get("/chat")).text
        assert "Read only" not in (await http.get("/schedules")).text


async def test_a_login_of_a_viewer_never_becomes_one_of_an_operator(rows: JobRows) -> None:
    app = app_of(rows)
    async with client(app) as viewer, client(app) as operator:
        await logged_in(viewer)
        await logged_in(operator, PASSWORD)
        cookies = [http.cookies[COOKIE].rpartition(".") for http in (viewer, operator)]
    (looking, _, looked), (doing, _, done) = cookies
    for forged in (f"{looking}.{done}", f"{doing}.{looked}"):
        async with client(app, cookies={COOKIE: forged}) as http:
            assert (await http.get("/api/jobs")).status_code == 401
    swapped = app_of(rows, guard=guard(VIEWER_PASSWORD, PASSWORD))
    for body, _, signature in cookies:
        async with client(swapped, cookies={COOKIE: f"{body}.{signature}"}) as http:
            assert (await http.get("/api/jobs")).status_code == 401, "not even where the passwords were exchanged"


@pytest.mark.parametrize(
    ("changed", "operator", "viewer"),
    [
        (guard(), 200, 200),
        (guard(password="new"), 401, 200),
        (guard(viewer="new"), 200, 401),
        (guard(viewer=""), 200, 401),
    ],
    ids=["neither", "the operator's", "the viewer's", "no viewer"],
)
async def test_a_changed_password_ends_the_logins_that_were_made_with_it(
    rows: JobRows, changed: GuardSettings, operator: int, viewer: int
) -> None:
    for password, status in ((PASSWORD, operator), (VIEWER_PASSWORD, viewer)):
        async with client(app_of(rows)) as http:
            await logged_in(http, password)
            cookie = http.cookies[COOKIE]
        async with client(app_of(rows, guard=changed), cookies={COOKIE: cookie}) as http:
            assert (await http.get("/api/jobs")).status_code == status


async def test_without_a_viewer_nobody_is_one(rows: JobRows) -> None:
    async with client(app_of(rows, guard=guard(viewer=""))) as http:
        for password in ("", VIEWER_PASSWORD):
            assert (await http.get("/api/jobs", auth=("viewer", password))).status_code == 401
            assert (await http.post("/login", json={"password": password})).status_code == 401


async def test_wrong_guesses_of_either_password_count_together(rows: JobRows) -> None:
    async with client(app_of(rows), OTHER_ADDRESS) as http:
        for user in ("maestro", "viewer", "maestro", "viewer", "root"):
            assert (await http.get("/api/jobs", auth=(user, "wrong"))).status_code == 401
        answer = await http.get("/api/jobs", auth=("viewer", "wrong"))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "10")
