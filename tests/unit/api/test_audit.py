"""The audit log over the API: pages, filters, and as CSV."""

import csv
import io
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from maestro.operations import reports
from tests.support.api_client import BASIC, VIEWER, app_of, client
from tests.support.job_rows import JobRows

API = "/api/audit"


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator, over a log of five entries."""
    for actor, action, subject, detail in (
        ("operator", "login", "", ""),
        ("unknown", "login.failed", "", ""),
        ("operator", "agent.change", "ada", "voice"),
        ("web:u-1", "question.refused", "7", ""),
        ("operator", "agent.change", "=bob", 'said "hello",\nand more'),
    ):
        rows.clock.go(minutes=1)
        with rows.store.begin() as tx:
            tx.system.audit.add_entry(actor, action, subject, detail)
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def listed(http: httpx.AsyncClient, **query: Any) -> list[int]:
    answer = await http.get(API, params=query)
    assert answer.status_code == 200, answer.text
    return [entry["id"] for entry in answer.json()["items"]]


async def test_entries_come_newest_first_in_pages(rows: JobRows, http: httpx.AsyncClient) -> None:
    first = (await http.get(API, params={"limit": 3})).json()
    with rows.store.begin() as tx:
        tx.system.audit.add_entry("operator", "meanwhile")
    rest = (await http.get(API, params={"limit": 3, "cursor": first["next"]})).json()
    assert [entry["id"] for entry in first["items"] + rest["items"]] == [5, 4, 3, 2, 1]
    assert rest["next"] is None
    assert rest["items"][0] == {
        "id": 2,
        "at": "2026-11-20T08:02:00Z",
        "actor": "unknown",
        "action": "login.failed",
        "subject": "",
        "detail": "",
        "origin": "",
    }


async def test_entries_are_filtered(http: httpx.AsyncClient) -> None:
    assert await listed(http, actor="operator", action="agent.change") == [5, 3]
    assert await listed(http, subject="ada") == [3]
    assert await listed(http, q="HELLO") == [5]
    assert await listed(http, since="2026-11-20T08:02:00Z", until="2026-11-20T10:04:00+02:00") == [3, 2]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"cursor": "nonsense"}, "cursor"),
        ({"cursor": "MjAyNi0xMS0yMFQwODowMTowMCswMDowMCB4"}, "cursor"),
        ({"since": "2026-11-20T08:00:00"}, "since"),
        ({"until": "0001-01-01T00:00:00+14:00"}, "1970"),
        ({"until": "9999-12-31T23:59:59-14:00"}, "9998"),
        ({"since": "2026-11-20T08:00:00Z", "until": "2026-11-19T08:00:00Z"}, "not after until"),
        ({"q": "a\0b"}, "NUL"),
        ({"who": "me"}, "who"),
    ],
)
async def test_what_makes_no_sense_is_refused(http: httpx.AsyncClient, query: dict[str, Any], words: str) -> None:
    for path in (API, f"{API}.csv") if not {"limit", "cursor"} & set(query) else (API,):
        answer = await http.get(path, params=query)
        assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
        assert words in answer.json()["message"]


async def test_what_is_exported_opens_in_a_spreadsheet_and_does_nothing_there(http: httpx.AsyncClient) -> None:
    answer = await http.get(f"{API}.csv", params={"actor": "operator"})
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="audit.csv"'
    head, *lines = csv.reader(io.StringIO(answer.text, newline=""))
    assert head == ["id", "at", "actor", "action", "subject", "detail", "origin"]
    assert [line[0] for line in lines] == ["5", "3", "1"]
    assert lines[0][4:6] == ["'=bob", 'said "hello",\nand more']


async def test_a_long_export_has_every_entry_once_and_an_end(
    rows: JobRows, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rows.store.begin() as tx:
        for number in range(2500):
            tx.system.audit.add_entry("operator", "something", str(number))
    lines = (await http.get(f"{API}.csv")).text.splitlines()
    assert len({line.partition(",")[0] for line in lines if line[:1].isdigit()}) == 2505
    monkeypatch.setattr(reports, "MOST_EXPORTED", 2000)
    capped = (await http.get(f"{API}.csv")).text.splitlines()
    assert (len(capped), capped[1].split(",")[4]) == (2001, "2499")


async def test_a_viewer_sees_who_did_what(http: httpx.AsyncClient) -> None:
    assert (await http.get(API, auth=VIEWER)).status_code == 200
    assert (await http.get(f"{API}.csv", auth=VIEWER)).status_code == 200
