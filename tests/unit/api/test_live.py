"""Conditional answers: 304 while nothing happened, and never for somebody else or another page."""

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request
from sqlalchemy import event
from starlette.responses import Response

from api.dashboard.pages import not_modified, render
from api.guards import Parts, PasswordRoute
from tests.support.api_client import BASIC, PASSWORD, VIEWER, app_of, client
from tests.support.fresh_store import sqlite_of
from tests.support.job_rows import JobRows

PAGE = "/watched"


def with_page(app: FastAPI, also: list[str]) -> FastAPI:
    """Add a page that asks whether it changed; it depends on what is in the list, too."""
    router = APIRouter(route_class=PasswordRoute)

    @router.get(PAGE)
    def show(request: Request, parts: Parts, fails: bool = False) -> Response:
        same = not_modified(request, *also)
        if same is not None:
            return same
        with parts.store.view() as tx:
            tx.system.audit.list_latest_entries(1)
        return render(request, "login.html", HTTPStatus.BAD_REQUEST if fails else HTTPStatus.OK, **FIELDS)

    app.include_router(router)
    return app


FIELDS: dict[str, Any] = {"title": "Watched", "next": "/", "problem": "", "left": False}


@pytest.fixture
def also() -> list[str]:
    """What else the page shows."""
    return []


@pytest.fixture
def app(rows: JobRows, also: list[str]) -> FastAPI:
    return with_page(app_of(rows), also)


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Look as the operator."""
    async with client(app, auth=BASIC) as http:
        yield http


async def tag(http: httpx.AsyncClient, path: str = PAGE, **options: Any) -> str:
    """Return the tag of what is shown now."""
    answer = await http.get(path, **options)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.headers["etag"]


async def looks(http: httpx.AsyncClient, seen: str, path: str = PAGE, **options: Any) -> int:
    """Look again with the tag of what is shown."""
    answer = await http.get(path, headers={"If-None-Match": seen}, **options)
    if answer.status_code == 304:
        assert (answer.content, answer.headers["etag"]) == (b"", seen)
    return answer.status_code


async def test_nothing_new_is_a_304_that_reads_no_table(rows: JobRows, http: httpx.AsyncClient) -> None:
    seen = await tag(http)
    begun: list[object] = []
    for engine in (sqlite_of(rows.store)._readers, sqlite_of(rows.store)._writer.engine):
        event.listen(engine, "begin", begun.append)
    assert await looks(http, seen) == 304
    assert not begun
    await tag(http)
    assert begun


async def test_any_commit_is_news(rows: JobRows, http: httpx.AsyncClient) -> None:
    seen = await tag(http)
    rows.add()
    assert await looks(http, seen) == 200
    newer = await tag(http)
    assert await looks(http, newer) == 304
    assert newer != seen


async def test_what_changes_while_a_page_is_made_is_not_lost(rows: JobRows, app: FastAPI) -> None:
    router = APIRouter(route_class=PasswordRoute)

    @router.get("/slow")
    def slow(request: Request) -> Response:
        same = not_modified(request)
        rows.add()
        return same or render(request, "login.html", **FIELDS)

    app.include_router(router)
    async with client(app, auth=BASIC) as http:
        seen = await tag(http, "/slow")
        assert await looks(http, seen, "/slow") == 200


async def test_another_address_another_reader_and_another_start_have_other_tags(
    rows: JobRows, app: FastAPI, http: httpx.AsyncClient, also: list[str]
) -> None:
    async with client(app) as browser:
        await browser.post("/login", json={"password": PASSWORD})  # which is written down, so it comes first
        seen = await tag(http)
        assert await looks(browser, seen) == 200, "it has the token of its login in it"
    assert await looks(http, seen, f"{PAGE}?page=2") == 200
    assert await looks(http, seen, auth=VIEWER) == 200
    async with client(with_page(app_of(rows), []), auth=BASIC) as restarted:
        assert await looks(restarted, seen) == 200
    also.append("Temporal is away")
    assert await looks(http, seen) == 200
    also.clear()
    assert await looks(http, seen) == 304


async def test_a_tag_lets_nobody_in(http: httpx.AsyncClient, app: FastAPI) -> None:
    seen = await tag(http)
    async with client(app) as stranger:
        assert await looks(stranger, seen) == 401


async def test_a_page_that_is_refused_has_no_tag(http: httpx.AsyncClient) -> None:
    answer = await http.get(f"{PAGE}?fails=true")
    assert answer.status_code == 400
    assert "etag" not in answer.headers
