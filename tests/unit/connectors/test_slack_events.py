"""The Events API: signed requests at our own route, acknowledged only when the message is in the inbox."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount

from connectors.base import ConnectorState
from connectors.slack.inbound import SlackEndpoint, is_signed_by_slack
from connectors.webhooks import MAX_BODY
from maestro.domain.errors import Backlogged
from maestro.domain.messages import Button
from tests.support.slack_app import SlackApp, chunk, slack_and_app
from tests.support.slack_server import SIGNING_SECRET, pressed, signature, slash

BASE = "/platforms/slack/default"
FORM = "application/x-www-form-urlencoded"


@dataclass
class EventsApp:
    """An app to which Slack posts, and the way to it."""

    app: SlackApp
    http: httpx.AsyncClient

    def event(self, text: str, channel: str = "C1") -> bytes:
        """Return the body of an event that tells of a new message."""
        slack = self.app.slack
        return json.dumps(slack.event(channel, slack.write(channel, "U1", text))).encode()

    async def post(self, body: bytes, path: str = "events", at: float | None = None, **headers: str) -> httpx.Response:
        """Post a request, signed as Slack does, with these headers instead of the right ones."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post(f"{BASE}/{path}", content=body, headers={**signed(body, at), **named})


async def never(*_: object) -> str:
    """Take for ever."""
    return str(await asyncio.Event().wait())


def signed(body: bytes, at: float | None = None) -> dict[str, str]:
    """Return the headers of a request that Slack sends at this time, or now."""
    timestamp = str(int(time.time() if at is None else at))
    return {
        "content-type": "application/json",
        "x-slack-request-timestamp": timestamp,
        "x-slack-signature": signature(SIGNING_SECRET, timestamp, body),
    }


def posting_to(routes: Sequence[BaseRoute]) -> httpx.AsyncClient:
    """Return a client that reaches routes without a socket."""
    transport = httpx.ASGITransport(Starlette(routes=[Mount(BASE, routes=list(routes))]))
    return httpx.AsyncClient(transport=transport, base_url="http://public.example")


@asynccontextmanager
async def events_app() -> AsyncIterator[EventsApp]:
    """Run one."""
    async with slack_and_app(mode="events") as app:
        await app.told(ConnectorState.RUNNING)
        async with posting_to(app.connector.routes()) as http:
            yield EventsApp(app, http)


async def test_an_event_is_acknowledged_when_its_message_is_in_the_inbox() -> None:
    async with events_app() as at:
        body = at.event("hello")
        assert [(await at.post(body)).status_code for _ in range(3)] == [200, 200, 200]
        assert at.app.said("C1") == ["hello"]


async def test_a_message_that_cannot_be_kept_is_not_acknowledged() -> None:
    async with events_app() as at:
        body = at.event("hello")
        at.app.context.failure = Backlogged("full")
        assert (await at.post(body)).status_code == 503
        at.app.context.failure = None
        assert (await at.post(body)).status_code == 200
        assert at.app.said("C1") == ["hello"]


async def test_an_inbox_that_takes_too_long_is_no_acknowledgement() -> None:
    endpoint = SlackEndpoint(SIGNING_SECRET, seconds=0.05)
    endpoint.take = never
    async with posting_to(endpoint.routes()) as http:
        body = b'{"type": "event_callback"}'
        assert (await http.post(f"{BASE}/events", content=body, headers=signed(body))).status_code == 503


async def test_who_is_not_connected_yet_acknowledges_nothing() -> None:
    async with posting_to(SlackEndpoint(SIGNING_SECRET).routes()) as http:
        body = b'{"type": "event_callback"}'
        assert (await http.post(f"{BASE}/events", content=body, headers=signed(body))).status_code == 503


async def test_wrong_signatures_are_refused_before_anything_is_read() -> None:
    async with events_app() as at:
        body = at.event("hello")
        wrong = [
            await at.post(body, x_slack_signature="v0=" + "0" * 64),
            await at.post(body, x_slack_signature=signature("another", str(int(time.time())), body)),
            await at.post(body, x_slack_signature=""),
            await at.post(body, x_slack_request_timestamp="soon"),
            await at.post(b"\xff\x00", x_slack_signature="v0=0"),
        ]
        assert {answer.status_code for answer in wrong} == {401}
        assert at.app.context.inbox == []


async def test_a_recorded_request_is_worth_nothing_later_and_changes_nothing_now() -> None:
    async with events_app() as at:
        body, now = at.event("hello"), int(time.time())
        assert (await at.post(body, at=now - 240)).status_code == 200
        assert (await at.post(body, at=now - 240)).status_code == 200
        assert (await at.post(body, at=now - 301)).status_code == 401
        assert (await at.post(body, at=now + 400)).status_code == 401
        earlier = signature(SIGNING_SECRET, str(now - 240), body)
        assert (await at.post(body, x_slack_signature=earlier)).status_code == 401
        assert at.app.said("C1") == ["hello"]


async def test_a_large_body_is_refused_without_being_read() -> None:
    async with events_app() as at:
        assert (await at.post(b"x" * (MAX_BODY + 1))).status_code == 413
        assert (await at.post(b"x", content_length=str(MAX_BODY + 1))).status_code == 413


async def test_slack_is_told_that_the_address_is_ours() -> None:
    async with events_app() as at:
        asked = json.dumps({"type": "url_verification", "challenge": "3eZbrw"}).encode()
        answer = await at.post(asked)
        assert (answer.status_code, answer.text) == (200, "3eZbrw")
        assert (await at.post(asked, x_slack_signature="v0=0")).status_code == 401


@pytest.mark.parametrize("path", ["events", "commands"])
async def test_slash_commands_come_as_forms(path: str) -> None:
    async with events_app() as at:
        stop = urlencode(slash(at.app.slack.workspace, "D1", "U1", "/stop")).encode()
        assert [(await at.post(stop, path=path, content_type=FORM)).status_code for _ in range(2)] == [200, 200]
        assert at.app.said("D1") == ["/stop"]
        dance = urlencode(slash(at.app.slack.workspace, "D1", "U1", "/dance")).encode()
        assert (await at.post(dance, path=path, content_type=FORM)).json() == {
            "text": "Unknown command; use /stop, /status or /new."
        }


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"[" * 100_000], ids=["cut", "list", "bytes", "deep"])
async def test_what_is_no_event_is_refused(body: bytes) -> None:
    async with events_app() as at:
        assert (await at.post(body)).status_code == 400


async def test_only_an_app_that_slack_posts_to_has_routes() -> None:
    async with slack_and_app(start=False) as app:
        assert not app.connector.routes()


async def test_what_slack_left_out_is_read_later() -> None:
    async with events_app() as at:
        assert (await at.post(at.event("first"))).status_code == 200
        at.app.slack.write("C1", "U1", "left out")
        assert (await at.post(json.dumps({"type": "app_rate_limited"}).encode())).status_code == 200
        await at.app.heard(2)
        assert at.app.said("C1") == ["first", "left out"]


def test_a_signature_is_over_the_raw_body() -> None:
    body = b'{"a": "\xc3\xa4"}'
    right = signature(SIGNING_SECRET, "1000", body)
    assert is_signed_by_slack(SIGNING_SECRET, "1000", right, body, 1000)
    assert not is_signed_by_slack(SIGNING_SECRET, "1000", right, body + b" ", 1000)
    assert not is_signed_by_slack(SIGNING_SECRET, "1000", right.upper(), body, 1000)
    assert not is_signed_by_slack(SIGNING_SECRET, "1e3", right, body, 1000)
    assert not any(
        is_signed_by_slack(SIGNING_SECRET, "1000", wrong, body, 1000) for wrong in ("", "v0=", "\xe4", "\udcff")
    )


async def test_a_press_comes_as_a_form_at_each_place_and_counts_once() -> None:
    async with events_app() as at:
        slack = at.app.slack
        at.app.context.buttons[chunk("").key] = (Button(label="Red", value="Red #7"),)
        await at.app.connector.send(chunk("Which colour?", buttons=at.app.context.buttons[chunk("").key]))
        (post,) = slack.posted("C1")
        body = urlencode({"payload": json.dumps(pressed(slack.workspace, "C1", "U1", post))}).encode()
        at.app.context.failure = Backlogged("full")
        assert (await at.post(body, "interactive", content_type=FORM)).status_code == 503
        at.app.context.failure = None
        for path in ("interactive", "events", "commands"):
            answer = await at.post(body, path, content_type=FORM)
            assert (answer.status_code, answer.content) == (200, b"")
        assert at.app.said("C1") == ["Red #7"]


@pytest.mark.parametrize(
    "payload", ["not JSON", "[]", "{}", '{"type": "view_submission"}', '{"type": "block_actions"}']
)
async def test_what_else_people_may_do_with_a_message_says_nothing(payload: str) -> None:
    async with events_app() as at:
        answer = await at.post(urlencode({"payload": payload}).encode(), "interactive", content_type=FORM)
        assert answer.status_code == (200 if payload.startswith("{") else 400)
        assert (await at.post(b"payload=%7B%7D", "interactive", x_slack_signature="v0=0")).status_code == 401
        assert at.app.context.inbox == []
