"""The page of settings: what holds and where it comes from, changed and taken back by plain forms."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from maestro.domain.settings.live import RUNTIME
from tests.support.api_client import BASIC, app_of, client, parts
from tests.support.job_rows import JobRows

PAGE = "/settings"
LIMIT = "chat.limits.maxMessageChars"
ROW = re.compile(r'<tr id="([\w.]+)"')
NASTY = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
VIEWER = ("viewer", "only for looking at it all")
MOST_BYTES = 80_000
"""What the style sheets and scripts, 70 kB, leave of the 150 kB that a page may weigh."""


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def row(page: httpx.Response, key: str) -> str:
    """Return the line of a key."""
    return page.text.split(f'<tr id="{key}"', 1)[1].split("</tr>", 1)[0]


async def held(http: httpx.AsyncClient, key: str) -> tuple[Any, str]:
    items = (await http.get("/api/settings")).json()["items"]
    (found,) = [one for one in items if one["key"] == key]
    return found["value"], found["origin"]


async def test_every_setting_is_there_once_in_its_section(http: httpx.AsyncClient) -> None:
    page = await http.get(PAGE)
    keys = [one["key"] for one in (await http.get("/api/settings")).json()["items"]]
    apart = [await http.get(link) for link in re.findall(r'href="(/settings\?q=connectors\.\w+\.)"', page.text)]
    shown = [set(ROW.findall(one.text)) for one in (page, *apart)]
    assert len(ROW.findall(page.text)) == len(shown[0])
    assert set.union(*shown) == set(keys)
    assert "connectors.telegram.mode" not in shown[0], "what is as it comes is shown with its platform"
    assert "connectors.telegram.dmPolicy" in shown[0], "what is changed here is not"
    assert 'id="general"' in page.text
    assert "default" in row(page, LIMIT)
    assert "MAESTRO_WEBUI_PORT" in row(page, "webui.port")
    assert "restart" in row(page, "webui.port")
    assert len(page.content) < MOST_BYTES


async def test_a_live_key_is_changed_and_reset(rows: JobRows, http: httpx.AsyncClient) -> None:
    form = await http.get(PAGE, params={"edit": LIMIT, "q": "limits"})
    assert 'value="4096"' in row(form, LIMIT)
    led = await http.post(f"{PAGE}/change", data={"key": LIMIT, "value": " 8192 ", "version": "0", "q": "limits"})
    assert (led.status_code, led.headers["location"]) == (303, f"{PAGE}?q=limits&changed={LIMIT}#{LIMIT}")
    assert await held(http, LIMIT) == (8192, RUNTIME)
    page = await http.get(led.headers["location"])
    assert "is 8192 now, until it is reset" in page.text
    assert 'action="/settings/reset"' in row(page, LIMIT)
    await http.post(f"{PAGE}/reset", data={"key": LIMIT, "version": "1"})
    assert await held(http, LIMIT) == (4096, "default")
    with rows.store.view() as tx:
        assert [(one.actor, one.subject) for one in tx.system.audit.list_latest_entries(5)] == [("operator", LIMIT)] * 2


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [
        ("chat.scanner.enabled", "false", False),
        ("budgets.dayUsd", "2.5", 2.5),
        ("budgets.onLimit", "fallback", "fallback"),
        ("chat.scanner.scope", "memory\r\n\r\n tools \r\n", ["memory", "tools"]),
        ("llm.cooldownMinutes", "1\n2.5\n", [1.0, 2.5]),
        ("tools.approvers", "", []),
    ],
)
async def test_each_type_has_its_own_field(http: httpx.AsyncClient, key: str, typed: str, value: Any) -> None:
    extra = {"budgets.fallbackModel": "demo/demo"} if key == "budgets.onLimit" else {}
    if extra:
        await http.patch("/api/settings", json=extra)
    assert 'name="value"' in row(await http.get(PAGE, params={"edit": key}), key)
    led = await http.post(f"{PAGE}/change", data={"key": key, "value": typed})
    assert led.status_code == 303, led.text
    assert (await held(http, key))[0] == value


@pytest.mark.parametrize(
    ("key", "typed", "status", "sentence"),
    [
        (LIMIT, "1", 400, "must be at least 64"),
        (LIMIT, "many", 400, "expected a whole number"),
        ("llm.cooldownMinutes", "1\nsoon", 400, "expected a number in each line"),
        ("budgets.dayUsd", NASTY, 400, "expected a number"),
        ("budgets.onLimit", "laugh", 400, "budgets.onLimit"),
    ],
)
async def test_what_cannot_be_is_said_beside_its_field_with_what_was_typed(
    http: httpx.AsyncClient, key: str, typed: str, status: int, sentence: str
) -> None:
    page = await http.post(f"{PAGE}/change", data={"key": key, "value": typed})
    assert page.status_code == status
    assert sentence in row(page, key)
    assert 'aria-invalid="true"' in row(page, key)
    assert 'href="/settings/change' not in page.text
    if key == LIMIT:
        assert f'value="{typed}"' in row(page, key)
    assert "<script>alert" not in page.text
    assert (await http.get("/api/settings")).json()["version"] == 0


@pytest.mark.parametrize(
    ("data", "status", "sentence"),
    [
        ({"key": "webui.port", "value": "99"}, 409, 'role="alert">webui.port'),
        ({"key": NASTY, "value": "99"}, 400, "this setting does not exist"),
        ({"key": LIMIT, "value": "99", "version": "7"}, 409, "the settings were changed meanwhile"),
        ({"key": "webui.password", "value": "hunter2"}, 409, 'role="alert">webui.password'),
    ],
)
async def test_what_is_not_set_here_is_said(
    http: httpx.AsyncClient, data: dict[str, str], status: int, sentence: str
) -> None:
    page = await http.post(f"{PAGE}/change", data=data)
    assert (page.status_code, sentence in page.text) == (status, True)
    assert "hunter2" not in page.text
    assert "<script>alert" not in page.text


async def test_the_filters_are_those_of_the_address(http: httpx.AsyncClient) -> None:
    await http.patch("/api/settings", json={LIMIT: 100})
    assert ROW.findall((await http.get(PAGE, params={"origin": "runtime"})).text) == [LIMIT]
    assert ROW.findall((await http.get(PAGE, params={"q": "CHAT maxmessage"})).text) == [LIMIT]
    live = (await http.get(PAGE, params={"changes": "live", "q": "webui"})).text
    assert "webui.port" not in ROW.findall(live)
    none = await http.get(PAGE, params={"q": NASTY})
    assert "No setting is like that." in none.text
    assert "<script>alert" not in none.text


async def test_a_viewer_sees_the_values_and_changes_none(rows: JobRows) -> None:
    guard = replace(parts(rows).guard, viewer_password=VIEWER[1])
    async with client(app_of(rows, guard=guard), auth=VIEWER) as http:
        page = await http.get(PAGE, params={"edit": LIMIT})
        assert "4096" in row(page, LIMIT)
        assert "<form" not in row(page, LIMIT)
        assert "Change</a>" not in page.text
        assert (await http.post(f"{PAGE}/change", data={"key": LIMIT, "value": "99"})).status_code == 403


async def test_texts_that_were_set_are_no_markup(http: httpx.AsyncClient) -> None:
    answer = await http.patch("/api/settings", json={"budgets.fallbackModel": "x/<img-src=x>"})
    assert answer.status_code == 200, answer.text
    page = await http.get(PAGE, params={"edit": "budgets.fallbackModel"})
    assert "<img" not in page.text
    assert "x/&lt;img-src=x&gt;" in page.text
