"""What Meta posts: signed, whole batches kept before they are acknowledged, and nothing of anybody else's."""

import asyncio
import json
from collections.abc import Sequence

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount
from structlog.testing import capture_logs

from connectors.webhooks import MAX_BODY
from connectors.whatsapp.connector import WhatsAppEndpoint
from maestro.domain.errors import Backlogged, StoreBusy
from maestro.domain.messages import IncomingMessage
from tests.support.whatsapp_number import ADA, BASE, ZOE, WhatsAppNumber, whatsapp_and_number
from tests.support.whatsapp_server import APP_SECRET, SECOND_NUMBER_ID, VERIFY_TOKEN, signature
from tests.support.whatsapp_server.business import NUMBER_ID, Json

HELLO = b'{"object": "whatsapp_business_account", "entry": []}'


async def never(*_: object) -> str:
    """Take for ever."""
    return str(await asyncio.Event().wait())


def batch(number: WhatsAppNumber, *messages: Json, statuses: Sequence[Json] = (), of: str = NUMBER_ID) -> bytes:
    """Return the body of one request."""
    return json.dumps(number.whatsapp.postman.payload(messages, statuses, of), ensure_ascii=False).encode()


def text(number: WhatsAppNumber, said: str, person: str = ADA) -> Json:
    """Return a message as Meta has it."""
    return number.whatsapp.business.wrote(person, "text", {"body": said})


async def posted(number: WhatsAppNumber, body: bytes, signed: str | None = None) -> int:
    """Post a request once."""
    return await number.whatsapp.postman.send(body, signed=signed)


def posting_to(routes: Sequence[BaseRoute]) -> httpx.AsyncClient:
    """Return a client that reaches routes without a socket."""
    transport = httpx.ASGITransport(Starlette(routes=[Mount(BASE, routes=list(routes))]))
    return httpx.AsyncClient(transport=transport, base_url="http://public.example")


async def test_meta_is_told_that_the_address_is_ours_and_nobody_else_is() -> None:
    async with whatsapp_and_number() as number:
        asked = {"hub.mode": "subscribe", "hub.verify_token": VERIFY_TOKEN, "hub.challenge": "1158201444"}
        answer = await number.http.get(f"{BASE}/", params=asked)
        assert (answer.status_code, answer.text) == (200, "1158201444")
        assert answer.headers["content-type"].startswith("text/plain")
        for wrong in ({"hub.verify_token": "another"}, {"hub.verify_token": ""}, {"hub.mode": "unsubscribe"}):
            refused = await number.http.get(f"{BASE}/", params={**asked, **wrong})
            assert (refused.status_code, "1158201444" in refused.text) == (403, False)
        assert (await number.http.get(f"{BASE}/")).status_code == 403
        assert (await number.http.get(f"{BASE}/?hub.mode=subscribe&hub.verify_token=%FF")).status_code == 403


async def test_a_batch_is_acknowledged_when_all_of_it_is_kept() -> None:
    async with whatsapp_and_number() as number:
        body = batch(number, text(number, "one"), text(number, "grüße 👋", ZOE), text(number, "two"))
        assert [await posted(number, body) for _ in range(3)] == [200, 200, 200]
        assert (number.said(), number.said(ZOE)) == (["one", "two"], ["grüße 👋"])


async def test_what_was_kept_of_a_batch_is_absorbed_when_it_comes_again() -> None:
    async with whatsapp_and_number() as number:
        body = batch(number, text(number, "one"), text(number, "two"), text(number, "three"))
        number.context.limit = 1
        assert await posted(number, body) == 503
        assert number.said() == ["one"]
        number.context.limit = 10
        assert await posted(number, body) == 200
        assert number.said() == ["one", "two", "three"]


@pytest.mark.parametrize("failure", [Backlogged("full"), StoreBusy("locked"), RuntimeError("a bug")])
async def test_what_cannot_be_kept_is_not_acknowledged(failure: Exception) -> None:
    async with whatsapp_and_number() as number:
        number.context.failure = failure
        message = batch(number, text(number, "hello"))
        status = {"id": "wamid.1", "status": "sent", "biz_opaque_callback_data": "key1"}
        assert await posted(number, message) == 503
        assert await posted(number, batch(number, statuses=[status])) == 503
        number.context.failure = None
        assert await posted(number, message) == 200
        assert number.said() == ["hello"]


async def test_an_inbox_that_takes_too_long_is_no_acknowledgement() -> None:
    webhook = WhatsAppEndpoint(APP_SECRET, VERIFY_TOKEN, seconds=0.05)
    webhook.take = never
    async with posting_to(webhook.routes()) as http:
        headers = {"x-hub-signature-256": signature(APP_SECRET, HELLO)}
        assert (await http.post(f"{BASE}/", content=HELLO, headers=headers)).status_code == 503


async def test_who_does_not_know_yet_who_it_is_acknowledges_nothing() -> None:
    async with whatsapp_and_number(start=False) as number:
        assert await posted(number, batch(number, text(number, "too early"))) == 503
        await number.start()
        assert await posted(number, batch(number, text(number, "hello"))) == 200
        assert number.said() == ["hello"]


async def test_wrong_signatures_are_refused_before_anything_is_read() -> None:
    async with whatsapp_and_number() as number:
        body = batch(number, text(number, "hello ä"))
        right = signature(APP_SECRET, body)
        again = json.dumps(json.loads(body)).encode()  # the same words in other bytes
        wrong = [
            await posted(number, body, "sha256=" + "0" * 64),
            await posted(number, body, signature("another", body)),
            await posted(number, body, right.removeprefix("sha256=")),
            await posted(number, body, right.upper()),
            await posted(number, body, ""),
            await posted(number, body + b" ", right),
            await posted(number, again, right),
            await posted(number, b"\xff\x00", "sha256=0"),
        ]
        assert set(wrong) == {401}
        assert number.context.inbox == []


async def test_a_request_that_is_played_again_changes_nothing() -> None:
    async with whatsapp_and_number() as number:
        body = batch(number, text(number, "once"))
        right = signature(APP_SECRET, body)
        assert [await posted(number, body, right) for _ in range(2)] == [200, 200]
        assert number.said() == ["once"]


async def test_a_large_body_is_refused_without_being_read() -> None:
    async with whatsapp_and_number() as number:
        assert await posted(number, b"x" * (MAX_BODY + 1)) == 413
        claimed = {"content-length": str(MAX_BODY + 1)}
        assert (await number.http.post(f"{BASE}/", content=b"x", headers=claimed)).status_code == 413


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"[" * 100_000], ids=["cut", "list", "bytes", "deep"])
async def test_what_is_no_request_of_meta_is_refused(body: bytes) -> None:
    async with whatsapp_and_number() as number:
        assert await posted(number, body) == 400


async def test_what_is_for_another_number_is_acknowledged_and_counted_and_not_taken() -> None:
    async with whatsapp_and_number() as number:
        other = json.loads(batch(number, text(number, "not for you"), of=SECOND_NUMBER_ID))
        ours = json.loads(batch(number, text(number, "for you")))
        both = {**ours, "entry": [*other["entry"], *ours["entry"]]}
        with capture_logs() as logs:
            assert await posted(number, json.dumps(both).encode()) == 200
        assert number.said() == ["for you"]
        [line] = [line for line in logs if line["event"] == "whatsapp.of_another_number"]
        assert line["count"] == 1


async def test_garbage_that_is_signed_holds_up_nobody() -> None:
    async with whatsapp_and_number() as number:
        garbage: list[Json] = [
            {},
            {"from": ADA, "type": "text"},
            {"from": ADA, "id": "wamid.1", "timestamp": "never", "type": "text", "text": {"body": "x"}},
            {"from": ADA, "id": "wamid.2", "timestamp": "9" * 40, "type": "text", "text": {"body": "x"}},
            {"from": ADA, "id": "w" * 300, "timestamp": "1", "type": "text", "text": {"body": "x"}},
            {"from": ADA, "id": "wamid.3", "timestamp": "1", "type": "image", "image": "not an object"},
            {"from": ADA, "id": "wamid.4", "timestamp": "1", "type": "interactive", "interactive": {"kind": 7}},
            {"from": ADA, "id": "wamid.5", "timestamp": "1", "type": "contacts", "contacts": [{"phones": [1]}]},
            {"from": "", "id": "wamid.6", "timestamp": "1", "type": "text", "text": {"body": "x"}},
            {"from": ADA, "id": "wamid.7", "timestamp": "1", "type": "text", "text": {"body": "  "}},
        ]
        with capture_logs() as logs:
            statuses: list[Json] = [{}, {"status": "sent", "biz_opaque_callback_data": "key1"}]
            assert await posted(number, batch(number, *garbage, text(number, "sane"), statuses=statuses)) == 200
        assert [content for content in number.said() if "pass on" not in content] == ["sane"]
        assert number.context.reports == {}
        assert not any(ADA in str(line) for line in logs)


async def test_what_no_store_takes_is_replaced_and_holds_up_nobody() -> None:
    half = "\ud83d"
    async with whatsapp_and_number() as number:
        broken = {**text(number, f"so {half}\0"), "context": {"id": half}}
        status = {"id": f"wamid.{half}", "status": "sent", "biz_opaque_callback_data": "key1"}
        body = json.dumps(number.whatsapp.postman.payload([broken, text(number, "sane")], [status], NUMBER_ID))
        assert await posted(number, body.encode()) == 200
        assert number.said() == ["so \ufffd\ufffd", "sane"]
        known = [number.context.inbox[0].reply_to, number.context.reports["key1"].platform_message_id]
        assert known == ["\ufffd", "wamid.\ufffd"]


async def test_what_is_nested_too_deep_to_be_read_is_refused() -> None:
    async with whatsapp_and_number() as number:
        for depth in (100_000, 900, 700, 500, 300):
            body = b'{"entry": ' + b"[" * depth + b"]" * depth + b"}"
            assert await posted(number, body) in (200, 400)


@pytest.mark.parametrize(
    "payload",
    [
        {"entry": None},
        {"entry": [None, 1, {"changes": "x"}, {"changes": [1, {"field": "messages", "value": 3}]}]},
        {"entry": [{"changes": [{"field": "account_update", "value": {}}]}]},
        {"entry": [{"changes": [{"field": "messages", "value": {"metadata": [], "messages": {}}}]}]},
    ],
)
async def test_a_request_of_another_shape_is_acknowledged(payload: Json) -> None:
    async with whatsapp_and_number() as number:
        assert await posted(number, json.dumps(payload).encode()) == 200
        assert number.context.inbox == []


async def test_two_requests_at_once_keep_the_order_of_a_person_and_hold_up_no_other() -> None:
    async with whatsapp_and_number() as number:
        order: list[str] = []
        held = asyncio.Event()
        accept = number.context.accept

        async def slow(message: IncomingMessage) -> object:
            if message.content == "first":
                await held.wait()
            order.append(message.content)
            return await accept(message)

        number.context.accept = slow  # type: ignore[assignment,method-assign]
        first = asyncio.create_task(posted(number, batch(number, text(number, "first"))))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(posted(number, batch(number, text(number, "second"))))
        assert await posted(number, batch(number, text(number, "hello", ZOE))) == 200
        held.set()
        assert (await first, await second) == (200, 200)
        assert order == ["hello", "first", "second"]
