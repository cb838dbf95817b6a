"""Connectors on the REST API: what is shown, what may be changed, and that no secret comes back.

See docs/decisions.md: secrets at rest.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest

from maestro.domain.messages import Address
from maestro.installation.data_folder import SecretKeys
from tests.support.api_client import BASIC, ENCRYPTION_KEY, app_of, client
from tests.support.job_rows import JobRows

TOKEN = "discord-TOKEN-SECRET-23-abcd"
OTHER_TOKEN = "discord-TOKEN-SECRET-42-wxyz"
DISCORD = {"platform": "discord", "account": "mine", "secrets": {"token": TOKEN}}
MINE = "/api/connectors/discord/mine"


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """Open a store."""
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the API as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def kept(rows: JobRows) -> str:
    """Return the token that the process of the connector would use."""
    with rows.store.view() as tx:
        secret = tx.bots.get_bot("discord", "mine").stored_secrets["token"]
    return SecretKeys(ENCRYPTION_KEY, {}).reveal_key(secret).get_secret_value()


async def test_a_connector_that_is_added_shows_the_end_of_its_token_and_no_more(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    added = await http.post("/api/connectors", json={**DISCORD, "agent": "ada", "options": {"channels": ["100"]}})
    assert added.status_code == HTTPStatus.CREATED
    body: dict[str, Any] = added.json()
    assert (body["agent"], body["enabled"], body["configured"], body["state"]) == ("ada", True, False, "")
    assert (body["secrets"], body["options"]) == (
        [{"name": "token", "reference": "", "last4": "abcd"}],
        {"channels": ["100"]},
    )
    assert (await http.get(MINE)).json() == body
    assert (await http.get("/api/connectors")).json() == {"items": [body], "next": None}
    assert kept(rows) == TOKEN
    with rows.store.view() as tx:
        assert TOKEN not in tx.bots.get_bot("discord", "mine").secrets


async def test_a_reference_is_shown_as_it_is(http: httpx.AsyncClient) -> None:
    await http.post("/api/connectors", json={**DISCORD, "secrets": {"token": "env:DISCORD_TOKEN"}})
    shown = (await http.get(MINE)).json()
    assert shown["secrets"] == [{"name": "token", "reference": "env:DISCORD_TOKEN", "last4": ""}]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"secrets": {}}, "token is missing"),
        ({"secrets": {"token": TOKEN, "key": "x"}}, "discord has no key; expected token"),
        ({"secrets": {"token": "two\nlines"}}, "in one line"),
        ({"options": {"chanels": []}}, "chanels: unknown field; the fields are"),
        ({"platform": "icq"}, "there is no connector for 'icq'; the installed ones are: discord, slack"),
        ({"platform": "web"}, "the web connector always exists"),
        ({"account": "a/b"}, "letters, digits"),
        ({"agent": "nobody"}, "nobody"),
    ],
)
async def test_what_cannot_be_is_refused_with_a_sentence_and_no_secret(
    http: httpx.AsyncClient, wrong: dict[str, Any], says: str
) -> None:
    refused = await http.post("/api/connectors", json={**DISCORD, **wrong})
    assert refused.is_client_error
    assert says in refused.json()["message"]
    assert "SECRET" not in refused.text
    assert (await http.get("/api/connectors")).json()["items"] == []


async def test_a_name_is_taken_once(http: httpx.AsyncClient) -> None:
    await http.post("/api/connectors", json=DISCORD)
    assert (await http.post("/api/connectors", json=DISCORD)).status_code == HTTPStatus.CONFLICT


async def test_what_is_changed_is_changed_and_what_is_left_out_stays(rows: JobRows, http: httpx.AsyncClient) -> None:
    await http.post("/api/connectors", json={**DISCORD, "options": {"channels": ["100"], "slashCommands": False}})
    await http.patch(MINE, json={"agent": "ada", "options": {"channels": None}})
    changed = (await http.patch(MINE, json={"enabled": False})).json()
    assert (changed["agent"], changed["enabled"], changed["options"]) == ("ada", False, {"slashCommands": False})
    assert kept(rows) == TOKEN
    shown = (await http.patch(MINE, json={"agent": "", "secrets": {"token": OTHER_TOKEN}})).json()
    assert (shown["agent"], shown["secrets"][0]["last4"], kept(rows)) == ("", "wxyz", OTHER_TOKEN)


async def test_a_token_goes_nowhere_it_was_not_meant_for(rows: JobRows, http: httpx.AsyncClient) -> None:
    await http.post("/api/connectors", json=DISCORD)
    elsewhere = {"options": {"baseUrl": "https://evil.example"}}
    refused = await http.patch(MINE, json=elsewhere)
    assert "give the secrets again" in refused.json()["message"]
    with rows.store.view() as tx:
        assert tx.bots.get_bot("discord", "mine").option_values == {}
    assert (await http.patch(MINE, json={**elsewhere, "secrets": {"token": OTHER_TOKEN}})).is_success


async def test_one_of_the_configuration_can_only_be_switched(rows: JobRows, http: httpx.AsyncClient) -> None:
    with rows.store.begin() as tx:
        tx.bots.set_configured({("discord", "mine"): None})
    refused = await http.patch(MINE, json={"secrets": {"token": TOKEN}})
    assert (refused.status_code, "change it there" in refused.json()["message"]) == (HTTPStatus.CONFLICT, True)
    assert (await http.delete(MINE)).status_code == HTTPStatus.CONFLICT
    assert (await http.patch(MINE, json={"enabled": False})).json()["enabled"] is False


async def test_a_connector_is_removed_with_its_secrets(rows: JobRows, http: httpx.AsyncClient) -> None:
    await http.post("/api/connectors", json=DISCORD)
    assert (await http.delete(MINE)).status_code == HTTPStatus.NO_CONTENT
    assert (await http.get(MINE)).status_code == HTTPStatus.NOT_FOUND
    assert (await http.patch(MINE, json={"enabled": True})).status_code == HTTPStatus.NOT_FOUND
    with rows.store.view() as tx:
        assert [entry.action for entry in tx.system.audit.list_latest_entries(9)] == [
            "connector.remove",
            "connector.add",
        ]


async def test_what_connectors_say_of_themselves_is_shown(rows: JobRows, http: httpx.AsyncClient) -> None:
    await http.post("/api/connectors", json=DISCORD)
    with rows.store.begin() as tx:
        tx.users.record_connector_state("discord", "mine", "failed", "the token is wrong", trouble=True)
        tx.users.record_connector_event("discord", "mine", timedelta(seconds=2))
        tx.users.record_connector_state("web", "default", "running", "port 5070")
    mine, web = (await http.get("/api/connectors")).json()["items"]
    assert (mine["state"], mine["lastError"], mine["lagSeconds"]) == ("failed", "the token is wrong", 2.0)
    assert (web["platform"], web["state"], web["configured"]) == ("web", "running", True)


async def test_a_closed_channel_is_shown_with_its_reason_and_opened_by_an_operator(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    with rows.store.begin() as tx:
        tx.bots.channels.disable(Address(platform="discord", account="mine", channel="100"), "Missing Access")
    [closed] = (await http.get("/api/connectors/disabled-channels")).json()["items"]
    assert (closed["channel"], closed["reason"]) == ("100", "Missing Access")
    assert (await http.post(f"{MINE}/channels/100/enable")).status_code == HTTPStatus.NO_CONTENT
    assert (await http.post(f"{MINE}/channels/100/enable")).status_code == HTTPStatus.NOT_FOUND
    assert (await http.get("/api/connectors/disabled-channels")).json()["items"] == []
