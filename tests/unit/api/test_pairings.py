"""Pairings, people and what was ignored, over the API (docs/decisions.md: access)."""

from collections.abc import AsyncIterator

import httpx
import pytest

from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import JobStatus
from maestro.domain.messages import Address
from maestro.domain.people.people import PersonId
from maestro.intake.pairing import AN_OWNER, LET_IN
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.wishes import LIFETIME, wish


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def told(rows: JobRows) -> list[tuple[str, str]]:
    """Return what people are going to be told, and where."""
    with rows.store.view() as tx:
        found, _ = tx.jobs.lists.list_jobs(JobFilter(status=(JobStatus.PENDING,)), None, 10)
    return [(one.job.channel, one.job.notice) for one in found if one.job.notice]


async def test_wishes_come_newest_first_in_pages(rows: JobRows, http: httpx.AsyncClient) -> None:
    for name, code in (("ada", "ABCDEFGH"), ("bob", "BCDEFGHJ"), ("cleo", "CDEFGHJK")):
        wish(rows, name, code)
    first = (await http.get("/api/pairings?limit=2")).json()
    rest = (await http.get("/api/pairings", params={"limit": 2, "cursor": first["next"]})).json()
    assert [one["person"] for one in first["items"] + rest["items"]] == ["slack:cleo", "slack:bob", "slack:ada"]
    assert (first["items"][0]["code"], first["items"][0]["status"], rest["next"]) == ("CDEFGHJK", "pending", None)
    rows.clock.now += LIFETIME
    assert {one["status"] for one in (await http.get("/api/pairings")).json()["items"]} == {"expired"}


@pytest.mark.parametrize(
    ("which", "body", "owner", "words"), [("1", None, False, LET_IN), ("abcd-efgh", {"owner": True}, True, AN_OWNER)]
)
async def test_who_is_approved_is_known_and_told(
    rows: JobRows, http: httpx.AsyncClient, which: str, body: dict[str, bool] | None, owner: bool, words: str
) -> None:
    wish(rows, "ada", "ABCDEFGH")
    answer = await http.post(f"/api/pairings/{which}/approve", json=body)
    assert (answer.status_code, answer.json()["status"], answer.json()["settledBy"]) == (200, "approved", "operator")
    assert told(rows) == [("D-ada", words)]
    with rows.store.view() as tx:
        assert tx.users.owners.is_owner(PersonId("slack", "ada")) is owner
    (person,) = (await http.get("/api/people")).json()["items"]
    assert (person["id"], person["userName"], person["addedBy"]) == ("slack:ada", "Ada", "operator")
    again = await http.post(f"/api/pairings/{which}/approve")
    assert (again.status_code, again.json()["error"]) == (409, "Conflict")


async def test_who_is_refused_is_told_nothing(rows: JobRows, http: httpx.AsyncClient) -> None:
    wish(rows, "ada", "ABCDEFGH")
    assert (await http.post("/api/pairings/1/refuse")).json()["status"] == "refused"
    assert told(rows) == []
    assert (await http.get("/api/people")).json()["items"] == []
    assert (await http.post("/api/pairings/7/refuse")).status_code == 404


async def test_an_invitation_is_told_once_and_only_its_digest_kept(rows: JobRows, http: httpx.AsyncClient) -> None:
    made = await http.post("/api/pairings/invite", json={"owner": True})
    assert (made.status_code, made.json()["owner"]) == (201, True)
    with rows.store.begin() as tx:
        found = tx.users.pairings.redeem_invitation(made.json()["code"])
        assert found is not None
        assert found.as_owner
        assert made.json()["code"] not in found.digest
    assert (await http.post("/api/pairings/invite")).json()["owner"] is False


async def test_people_are_listed_in_pages_and_forgotten(rows: JobRows, http: httpx.AsyncClient) -> None:
    with rows.store.begin() as tx:
        for person in ("slack:b", "irc:z", "slack:a:1"):
            tx.users.pairings.grant_access(PersonId.parse_text(person), "", "operator")
    first = (await http.get("/api/people?limit=2")).json()
    rest = (await http.get("/api/people", params={"limit": 2, "cursor": first["next"]})).json()
    assert [one["id"] for one in first["items"] + rest["items"]] == ["irc:z", "slack:a:1", "slack:b"]
    assert (await http.delete("/api/people/slack:a:1")).status_code == 204
    assert (await http.delete("/api/people/slack:a:1")).status_code == 404
    assert (await http.delete("/api/people/nobody")).status_code == 400


async def test_what_was_ignored_is_counted_by_channel_and_reason(rows: JobRows, http: httpx.AsyncClient) -> None:
    for channel, reason, times in (("a", "dull", 1), ("a", "too loud", 3), ("b", "dull", 2)):
        for _ in range(times):
            rows.clock.go(seconds=1)
            with rows.store.begin() as tx:
                tx.inbox.ignored.add_ignored(Address(platform="slack", channel=channel), reason)
    first = (await http.get("/api/ignored?limit=2")).json()
    rest = (await http.get("/api/ignored", params={"limit": 2, "cursor": first["next"]})).json()
    found = [(one["channel"], one["reason"], one["count"]) for one in first["items"] + rest["items"]]
    assert found == [("a", "too loud", 3), ("b", "dull", 2), ("a", "dull", 1)]
    assert first["items"][0]["firstAt"] < first["items"][0]["lastAt"]
