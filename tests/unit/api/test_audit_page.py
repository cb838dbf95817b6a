"""The page of the audit log: filters in the address, pages that miss nothing, and texts that stay texts."""

import re
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from maestro.domain.people.views import LIMIT
from maestro.store.users.audit import set_origin
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows

PAGE = "/audit"
NASTY = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def note(rows: JobRows, actor: str, action: str, subject: str = "", detail: str = "") -> None:
    rows.clock.go(seconds=1)
    with rows.store.begin() as tx:
        tx.system.audit.add_entry(actor, action, subject, detail)


def numbers(page: httpx.Response) -> list[int]:
    return [int(number) for number in re.findall(r'id="entry-(\d+)"', page.text)]


async def test_what_was_done_comes_newest_first_with_where_it_came_from(rows: JobRows, http: httpx.AsyncClient) -> None:
    note(rows, "operator", "agent.create", "ada", "by hand")
    with set_origin("203.0.113.9"):
        note(rows, "viewer", "login")
    page = await http.get(PAGE)
    assert page.status_code == 200
    assert numbers(page) == [2, 1]
    assert "<code>203.0.113.9</code>" in page.text
    assert 'datetime="2026-11-20T08:00:02+00:00"' in page.text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"actor": "viewer"}, [2]),
        ({"action": " job.resume "}, [3]),
        ({"subject": "ada"}, [1]),
        ({"q": "BY HAND"}, [1]),
        ({"since": "2026-11-20 08:00:02"}, [3, 2]),
        ({"until": "2026-11-20T08:00:03+00:00"}, [2, 1]),
        ({"since": "2026-11-21"}, []),
        ({"actor": "", "action": "", "q": ""}, [3, 2, 1]),
    ],
)
async def test_filters_are_those_of_the_address(
    rows: JobRows, http: httpx.AsyncClient, query: dict[str, str], found: list[int]
) -> None:
    note(rows, "operator", "agent.create", "ada", "by hand")
    note(rows, "viewer", "login")
    note(rows, "operator", "job.resume", "message-1")
    page = await http.get(PAGE, params=query)
    assert (page.status_code, numbers(page)) == (200, found)
    for name, text in query.items():
        assert f'name="{name}"' in page.text
        assert text.strip() in page.text


async def test_the_pages_of_the_list_miss_nothing_and_keep_the_filter(rows: JobRows, http: httpx.AsyncClient) -> None:
    for number in range(LIMIT + 3):
        note(rows, "operator", "job.resume", f"message-{number}")
    note(rows, "viewer", "login")
    first = await http.get(PAGE, params={"actor": "operator"})
    (following,) = re.findall(r'rel="next" href="([^"]+)"', first.text)
    second = await http.get(following.replace("&amp;", "&"))
    assert parse_qs(urlsplit(following.replace("&amp;", "&")).query)["actor"] == ["operator"]
    assert numbers(first) + numbers(second) == list(range(LIMIT + 3, 0, -1))
    assert 'rel="next"' not in second.text


async def test_the_link_to_the_csv_has_the_filter(rows: JobRows, http: httpx.AsyncClient) -> None:
    note(rows, "operator", "agent.create", "ada")
    note(rows, "viewer", "login")
    page = await http.get(PAGE, params={"actor": "viewer", "since": "2026-11-20"})
    (link,) = re.findall(r'href="(/api/audit\.csv[^"]*)"', page.text)
    lines = (await http.get(link.replace("&amp;", "&"))).text.strip().splitlines()
    assert len(lines) == 2
    assert "viewer" in lines[1]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"since": "yesterday"}, "since: "),
        ({"cursor": "nonsense"}, "cursor: this is not a cursor"),
        ({"since": "2026-11-21", "until": "2026-11-20"}, "expected a time that is not after until"),
    ],
)
async def test_a_filter_that_cannot_be_is_said_and_stays_in_the_form(
    rows: JobRows, http: httpx.AsyncClient, query: dict[str, str], words: str
) -> None:
    note(rows, "operator", "login")
    page = await http.get(PAGE, params=query)
    assert page.status_code == 400
    assert words in page.text
    assert numbers(page) == []
    for name in query.keys() - {"cursor"}:
        assert f'value="{query[name]}"' in page.text


async def test_nothing_that_somebody_wrote_is_markup(rows: JobRows, http: httpx.AsyncClient) -> None:
    note(rows, NASTY, NASTY, NASTY, NASTY)
    page = await http.get(PAGE, params={"q": NASTY[:200]})
    assert numbers(page) == [1]
    assert "<script>alert" not in page.text
    assert "<img" not in page.text


async def test_an_empty_log_says_what_will_be_there(http: httpx.AsyncClient) -> None:
    assert "Nothing was done yet." in (await http.get(PAGE)).text
    assert "Nothing was done that fits." in (await http.get(PAGE, params={"actor": "nobody"})).text
