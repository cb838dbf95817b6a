"""Every guard, tried on every route: a new route without one, or with one that lets in too many, is found here."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRouter

from api.guards import COOKIE, CSRF_HEADER, RouteGuard
from api.parts import AgentChat, PayloadCoding
from tests.support.api_client import BASIC, PASSWORD, VIEWER, VIEWER_PASSWORD, app_of, client
from tests.support.job_rows import JobRows
from tests.support.outside import chat_of
from tests.support.route_table import Way, ways

OPEN = {"GET /healthz", "GET /login", "POST /login", "GET /static/{path:path}"}
"""What everybody may ask for."""
OTHERS = {"POST /hooks/{path}": RouteGuard.SIGNATURE, "POST /mcp": RouteGuard.BEARER}
"""What is for programs outside, who have no password."""
HARMLESS = {
    "POST /api/codec/decode",
    "POST /api/schedules/preview",
    "POST /schedules/preview",
    "POST /api/skills/try",
    "POST /skills/try",
    "POST /queue/{job_id}/replay/preview",
    "POST /logout",
}
"""Unsafe methods that a viewer may use all the same: they change nothing, but for the viewer's own login."""
FOREIGN = ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"})
"""What browsers say of requests that a page of somebody else makes."""


class Doors:
    """An app with everything that an app can have, and every way into it."""

    def __init__(self, rows: JobRows) -> None:
        nothing = PayloadCoding(lambda payloads: payloads, lambda payloads: payloads, "default")
        self.app = app_of(rows, chat=AgentChat(chat_of(rows.store)), payloads=nothing)
        self.ways = tuple(ways(self.app))
        self._clock = rows.clock

    async def told(self, wanted: Callable[[Way], bool], **options: Any) -> dict[str, httpx.Response]:
        """Send a request each way, with httpx's own options, and return the answers by the names of the ways.

        Each comes from an address of its own, and later than the last: nobody is slowed down.
        """
        answers: dict[str, httpx.Response] = {}
        for number, way in enumerate(filter(wanted, self.ways)):
            self._clock.go(minutes=1)
            async with client(self.app, f"198.51.100.{number % 250}", **options) as http:
                answers[way.name] = await http.request(way.method, way.address)
        assert answers, "nothing was tried"
        return answers

    async def login(self, password: str) -> dict[str, Any]:
        """Log in, and return what the pages of a browser send from then on."""
        async with client(self.app) as http:
            token = (await http.post("/login", json={"password": password})).json()["csrfToken"]
            return {"cookies": {COOKIE: http.cookies[COOKIE]}, "headers": {CSRF_HEADER: token}}


@pytest.fixture
def doors(rows: JobRows) -> Doors:
    return Doors(rows)


def everything(way: Way) -> bool:
    del way
    return True


def of_people(way: Way) -> bool:
    return way.guard is RouteGuard.PASSWORD


def changing(way: Way) -> bool:
    return of_people(way) and way.changes


def let_in(answer: httpx.Response) -> bool:
    """Say whether a request came past the guard, whatever the route made of it then."""
    return answer.status_code not in (401, 403, 421, 429)


def kept_out(answers: dict[str, httpx.Response], status: int) -> set[str]:
    """Return which ways answered so, each in words and with no word of what is behind."""
    found = {name: answer for name, answer in answers.items() if answer.status_code == status}
    assert all(set(answer.json()) == {"error", "message"} for answer in found.values())
    return set(found)


# The table


def test_every_route_declares_one_guard(doors: Doors) -> None:
    assert len(doors.ways) > 100
    assert not [way.name for way in doors.ways if way.guard is None]


def test_who_needs_no_password_is_listed_here(doors: Doors) -> None:
    assert {way.name for way in doors.ways if way.guard is RouteGuard.NONE} == OPEN
    others = {way.name: way.guard for way in doors.ways if way.guard not in (RouteGuard.NONE, RouteGuard.PASSWORD)}
    assert others == OTHERS


def test_what_a_viewer_may_send_is_listed_here(doors: Doors) -> None:
    assert {way.name for way in doors.ways if way.viewer and way.changes} == HARMLESS
    assert not [way.name for way in doors.ways if of_people(way) and not way.viewer and not way.changes]


def test_a_route_without_a_guard_is_found(doors: Doors) -> None:
    stray = APIRouter()
    stray.add_api_route("/stray", lambda: None)
    doors.app.include_router(stray)
    assert [way.name for way in ways(doors.app) if way.guard is None] == ["GET /stray"]


async def test_the_description_says_what_is_for_viewers(doors: Doors) -> None:
    async with client(doors.app, auth=BASIC) as http:
        described = (await http.get("/api/openapi.json")).json()["paths"]
    said = {
        f"{method.upper()} {path}": operation.get("x-viewer")
        for path, operations in described.items()
        for method, operation in operations.items()
    }
    plain = {f"{way.method} {way.path.replace(':path', '')}": way for way in doors.ways}
    assert said == {name: plain[name].viewer if of_people(plain[name]) else None for name in said}
    assert said["POST /api/schedules/preview"] is True


# Who is kept out


async def test_nobody_is_let_in_without_credentials(doors: Doors) -> None:
    answers = await doors.told(lambda way: way.guard is not RouteGuard.NONE)
    # Who does not know the path of a webhook learns nothing of webhooks.
    assert answers.pop("POST /hooks/{path}").status_code == 404
    assert kept_out(answers, 401) == set(answers)
    assert "POST /mcp" in answers


async def test_a_person_is_led_to_the_login_and_back(doors: Doors) -> None:
    answers = await doors.told(lambda way: of_people(way) and not way.changes, headers={"Accept": "text/html"})
    assert {answer.status_code for answer in answers.values()} == {303}
    assert all(answer.headers["location"].startswith("/login?next=%2F") for answer in answers.values())


@pytest.mark.parametrize(
    "auth",
    [
        ("maestro", "wrong"),
        ("maestro", VIEWER_PASSWORD),
        ("viewer", PASSWORD),
        ("viewer", ""),
        ("", ""),
        ("root", PASSWORD),
    ],
)
async def test_nobody_is_let_in_with_wrong_ones(doors: Doors, auth: tuple[str, str]) -> None:
    answers = await doors.told(of_people, auth=auth)
    assert kept_out(answers, 401) == set(answers)


async def test_the_token_of_an_agent_opens_nothing_for_people(rows: JobRows, doors: Doors) -> None:
    with rows.store.begin() as tx:
        made = tx.agents.tokens.create_token(tx.agents.get_agent_by_slug("ada"), "laptop", "operator")
    answers = await doors.told(of_people, headers={"Authorization": f"Bearer {made.token}"})
    assert kept_out(answers, 401) == set(answers)


async def test_a_password_opens_nothing_for_agents(doors: Doors) -> None:
    answers = await doors.told(lambda way: way.guard is RouteGuard.BEARER, auth=BASIC)
    assert kept_out(answers, 401) == {"POST /mcp"}


async def test_a_name_that_is_not_ours_is_answered_nowhere(doors: Doors) -> None:
    answers = await doors.told(everything, auth=BASIC, headers={"Host": "evil.example"})
    assert kept_out(answers, 421) == {way.name for way in doors.ways}


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_no_foreign_page_changes_anything(doors: Doors, headers: dict[str, str]) -> None:
    answers = await doors.told(lambda way: way.changes, auth=BASIC, headers=headers)
    assert kept_out(answers, 403) == {way.name for way in doors.ways if way.changes}
    browser = await doors.login(PASSWORD)
    browser["headers"] |= headers
    answers = await doors.told(changing, **browser)
    assert kept_out(answers, 403) == set(answers)


@pytest.mark.parametrize("token", ["", "wrong", "of another login"])
async def test_no_change_goes_without_the_token_of_its_login(doors: Doors, token: str) -> None:
    browser = await doors.login(PASSWORD)
    other = await doors.login(PASSWORD)
    browser["headers"] = other["headers"] if token == "of another login" else {CSRF_HEADER: token}
    answers = await doors.told(changing, **browser)
    assert kept_out(answers, 403) == set(answers)
    assert all("X-CSRF-Token" in answer.json()["message"] for answer in answers.values())


# Who is let in


async def test_a_viewer_sees_everything_and_changes_nothing(rows: JobRows, doors: Doors) -> None:
    for options in ({"auth": VIEWER}, await doors.login(VIEWER_PASSWORD)):
        answers = await doors.told(lambda way: of_people(way) and way.path != "/logout", **options)
        refused = {way.name for way in doors.ways if changing(way)} - HARMLESS
        assert kept_out(answers, 403) == refused
        assert all(
            "A viewer sees everything and changes nothing" in answers[name].json()["message"] for name in refused
        )
        assert all(let_in(answer) for name, answer in answers.items() if name not in refused)
    with rows.store.view() as tx:
        entries = tx.system.audit.list_latest_entries(1000)
    noted = {entry.subject for entry in entries if (entry.actor, entry.action) == ("viewer", "refused")}
    assert noted == refused
    assert {entry.actor for entry in entries} == {"viewer"}


async def test_an_operator_is_let_in_everywhere(doors: Doors) -> None:
    for options in ({"auth": BASIC}, await doors.login(PASSWORD)):
        answers = await doors.told(lambda way: of_people(way) and way.path != "/logout", **options)
        assert [name for name, answer in answers.items() if not let_in(answer)] == []
        assert [name for name, answer in answers.items() if answer.status_code >= 500] == []


async def test_without_a_password_everybody_here_is_the_operator(rows: JobRows) -> None:
    doors = Doors(rows)
    doors.app = app_of(rows, password="")
    answers = await doors.told(lambda way: of_people(way) and way.path not in ("/api/chat", "/maestro"))
    assert [name for name, answer in answers.items() if not let_in(answer)] == []
    answers = await doors.told(changing, headers=FOREIGN[0])
    assert kept_out(answers, 403) == set(answers), "but no foreign page is"
