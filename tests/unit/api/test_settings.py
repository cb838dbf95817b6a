"""``/api/settings``: every key as it holds, and those that are set while Maestro runs."""

from http import HTTPStatus
from typing import Any

import httpx
import pytest

from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows

LIMIT = "chat.limits.maxMessageChars"


async def patched(http: httpx.AsyncClient, body: Any, **headers: str) -> httpx.Response:
    return await http.patch("/api/settings", json=body, headers=headers)


async def test_a_key_is_set_and_taken_back(rows: JobRows) -> None:
    async with client(app_of(rows), auth=BASIC) as http:
        before = await http.get("/api/settings")
        assert (before.json()["version"], before.headers["etag"]) == (0, '"0"')
        answer = await patched(http, {LIMIT: 8192, "chat": {"pollMs": 500}})
        assert answer.status_code == HTTPStatus.OK
        after = (await http.get("/api/settings")).json()
        assert answer.json() == after
        found = {one["key"]: one for one in after["items"]}
        assert (found[LIMIT]["value"], found[LIMIT]["origin"], found[LIMIT]["changes"]) == (8192, "runtime", "live")
        assert found["chat.pollMs"]["value"] == 500
        back = (await patched(http, {LIMIT: None})).json()
        assert [one["origin"] for one in back["items"] if one["key"] in (LIMIT, "chat.pollMs")] == [
            "default",
            "runtime",
        ]
        assert back["version"] == 2


REFUSALS: dict[str, tuple[Any, HTTPStatus, str, str]] = {
    "restart": ({"chat.enabled": False}, HTTPStatus.CONFLICT, "NeedsRestart", "MAESTRO_CHAT_ENABLED"),
    "value": ({LIMIT: -1}, HTTPStatus.BAD_REQUEST, "InvalidEdit", f"{LIMIT}: must be at least 64"),
    "unknown": ({"chat.limits.maxMessageChar": 99}, HTTPStatus.BAD_REQUEST, "InvalidEdit", f"did you mean {LIMIT}?"),
    "no object": ([1], HTTPStatus.BAD_REQUEST, "InvalidRequest", "body"),
    "old version": ({LIMIT: 99, "version": 7}, HTTPStatus.CONFLICT, "Conflict", "version 0 is the newest"),
    "no version": ({LIMIT: 99, "version": "new"}, HTTPStatus.BAD_REQUEST, "InvalidRequest", "version: expected"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_what_cannot_be_set_says_why_and_changes_nothing(case: str, rows: JobRows) -> None:
    body, status, error, words = REFUSALS[case]
    async with client(app_of(rows), auth=BASIC) as http:
        answer = await patched(http, body)
        assert (answer.status_code, answer.json()["error"]) == (status, error)
        assert words in answer.json()["message"]
        assert (await http.get("/api/settings")).json()["version"] == 0


async def test_if_match_says_what_was_read(rows: JobRows) -> None:
    async with client(app_of(rows), auth=BASIC) as http:
        assert (await patched(http, {LIMIT: 99}, **{"If-Match": '"0"'})).status_code == HTTPStatus.OK
        assert (await patched(http, {LIMIT: 98}, **{"If-Match": '"0"'})).status_code == HTTPStatus.CONFLICT
        assert (await patched(http, {LIMIT: 98}, **{"If-Match": "*"})).status_code == HTTPStatus.OK
