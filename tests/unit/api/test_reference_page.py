"""The API reference: every operation of the OpenAPI document, for people, behind the password."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows

MOST_BYTES = 150_000


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def test_every_operation_and_value_has_its_place(http: httpx.AsyncClient) -> None:
    described = (await http.get("/api/openapi.json")).json()
    index = await http.get("/docs")
    assert index.status_code == 200
    listed = re.findall(r'<a href="(/docs/[^"#]+)#([^"]+)"><code>', index.text)
    assert len(listed) == sum(len(methods) for methods in described["paths"].values())
    assert len(set(listed)) == len(listed)
    for path in sorted({path for path, _ in listed}):
        page = await http.get(path)
        assert page.status_code == 200
        assert len(page.content) < MOST_BYTES, path
        assert "``" not in page.text
        anchors = re.findall(r' id="([^"]+)"', page.text)
        assert len(set(anchors)) == len(anchors), path
        assert {anchor for group, anchor in listed if group == path} <= set(anchors)
        assert set(re.findall(r'href="#([^"]+)"', page.text)) - {"main"} <= set(anchors)
    assert (await http.get("/docs/nothing")).status_code == 404


async def test_a_filter_says_its_types_limits_and_meaning(http: httpx.AsyncClient) -> None:
    page = " ".join(re.sub(r"<[^>]+>", " ", (await http.get("/docs/jobs")).text).split())
    assert "List jobs, newest first; status and kind may be given several times." in page
    assert re.search(r"priority integer or null .*at least 1; at most 10", page)
    assert "status list of JobStatus" in page
    assert "limit integer at least 1; at most 200; 50 when it is left out" in page
    assert "job_id required path string" in page


async def test_it_is_behind_the_password(rows: JobRows) -> None:
    async with client(app_of(rows)) as http:
        for path in ("/docs", "/docs/jobs"):
            assert (await http.get(path)).status_code == 401
