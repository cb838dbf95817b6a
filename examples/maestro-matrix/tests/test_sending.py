"""Tests of sends, edits and reactions, and of their failures."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import Account, chunk
from maestro_matrix.errors import classify_answer, send_failure
from maestro_matrix.render import html
from matrix_homeserver import ADA, MOST_BYTES, TOKEN, Fault, Homeserver

from connectors.base import (
    AcknowledgesMessages,
    AmbiguousSend,
    EditsMessages,
    FailureScope,
    NotDispatched,
    PermanentSend,
    Reconciles,
    RetryableSend,
    SendFailure,
)
from connectors.hub import SendAction, attempt, choose_action
from maestro.domain.messages import Address

BEN = "@ben:example.org"
PNG = b"\x89PNG\r\n\x1a\n and pixels"


async def test_a_message_is_formatted_and_calls_nobody(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start()
    await account.connector.send(chunk(room, "**hello** @room <b>you</b>"))
    [content] = server.sent(room)
    assert (content["msgtype"], content["body"]) == ("m.text", "**hello** @room <b>you</b>")
    assert content["formatted_body"] == "<p><strong>hello</strong> @room &lt;b&gt;you&lt;/b&gt;</p>"
    assert (content["m.mentions"], content["com.beeper.linkpreviews"]) == ({}, [])
    await account.connector.send(chunk(room, "I am Maestro.", notice=True, key="another"))
    assert [one["msgtype"] for one in server.sent(room)] == ["m.text", "m.notice"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain & simple", ""),
        ("two\nlines", "<p>two<br />\nlines</p>"),
        ("![a cat](https://example.org/cat.png)", '<p>!<a href="https://example.org/cat.png">a cat</a></p>'),
        ("[x](javascript:alert)", ""),
        ("~~no~~", "<p><s>no</s></p>"),
        ("```py\n1 < 2\n```", '<pre><code class="language-py">1 &lt; 2\n</code></pre>'),
    ],
)
def test_markdown_becomes_html_where_it_has_to(text: str, shown: str) -> None:
    assert html(text) == shown


@pytest.mark.parametrize("text", ["\U0001f600" * 4000, '"' * 4000, ">" * 20 + "a\n\n", "|a" * 2000, "**a** " * 600])
async def test_whatever_is_as_long_as_it_may_be_is_taken(server: Homeserver, account: Account, text: str) -> None:
    room = await server.room()
    await account.start()
    whole = (text * 4000)[: account.connector.capabilities.max_length]
    await account.connector.send(chunk(room, whole))
    [content] = server.sent(room)
    assert content["body"] == whole
    assert len(json.dumps(content, ensure_ascii=False).encode()) < MOST_BYTES


async def test_a_thread_is_answered_within(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start(quote_replies="always")
    await account.connector.send(chunk(room, "one", thread="$root", reply_to="$said"))
    await account.connector.send(chunk(room, "two", thread="$root", key="another"))
    first, second = (content["m.relates_to"] for content in server.sent(room))
    thread = {"rel_type": "m.thread", "event_id": "$root"}
    assert first == {**thread, "is_falling_back": False, "m.in_reply_to": {"event_id": "$said"}}
    assert second == {**thread, "is_falling_back": True, "m.in_reply_to": {"event_id": "$root"}}


@pytest.mark.parametrize(
    ("option", "people", "quotes"),
    [("groups", (ADA, BEN), True), ("groups", (ADA,), False), ("always", (ADA,), True), ("never", (ADA, BEN), False)],
)
async def test_an_answer_quotes_where_it_is_to(
    server: Homeserver, account: Account, option: str, people: tuple[str, ...], quotes: bool
) -> None:
    room = await server.room(*people)
    await account.start(quote_replies=option)
    await account.connector.send(chunk(room, "an answer", reply_to="$said"))
    quoted = {"m.in_reply_to": {"event_id": "$said"}} if quotes else None
    assert server.sent(room)[0].get("m.relates_to") == quoted


async def test_a_file_is_uploaded_and_then_sent(server: Homeserver, account: Account, tmp_path: Path) -> None:
    room = await server.room()
    await account.start()
    (tmp_path / "1").write_bytes(PNG)
    picture = {"filename": "cat.png", "path": tmp_path / "1", "content_type": "image/png"}
    await account.connector.send(chunk(room, "a *cat*", **picture))
    await account.connector.send(chunk(room, "print()", filename="long.py", key="another"))
    cat, code = server.sent(room)
    assert (cat["msgtype"], cat["body"], cat["filename"]) == ("m.image", "a *cat*", "cat.png")
    assert (cat["info"], cat["formatted_body"]) == (
        {"mimetype": "image/png", "size": len(PNG)},
        "<p>a <em>cat</em></p>",
    )
    assert (code["msgtype"], code["body"], code["filename"]) == ("m.file", "long.py", "long.py")
    kept = [server.files[one["url"].rpartition("/")[2]] for one in (cat, code)]
    assert kept == [(PNG, "image/png"), (b"print()", "text/plain")]


async def test_an_upload_that_is_refused_closes_no_room(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start()
    server.faults["upload"].append(Fault.refused("M_FORBIDDEN"))
    outcome = await attempt(account.connector, chunk(room, "print()", filename="long.py"))
    assert isinstance(outcome, PermanentSend)
    assert outcome.scope is FailureScope.MESSAGE


async def test_a_homeserver_that_is_away_was_surely_not_asked(account: Account) -> None:
    account.server.port = 9  # no server listens on this port
    account.connect()
    assert isinstance(await attempt(account.connector, chunk("!room:x", "hello")), NotDispatched)


async def test_a_message_is_found_when_its_key_is_forgotten(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start()
    assert isinstance(account.connector, Reconciles)
    server.remembers_keys, now = False, datetime.now(UTC)
    sent = await account.connector.send(chunk(room, "hello", tried_at=now))
    for number in range(70):
        await server.say(room, f"line {number}")
    late = chunk(room, "hello", tried_at=now - timedelta(hours=1))
    assert choose_action(late, account.connector, now) is SendAction.LOOK
    assert await account.connector.find(late) == sent
    assert await account.connector.find(chunk(room, "hello", key="another", tried_at=now)) is None
    assert await account.connector.find(chunk(room, "hello", tried_at=now + timedelta(hours=1))) is None


async def test_a_message_among_too_many_others_stays_in_doubt(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start()
    for number in range(510):
        await server.say(room, f"line {number}")
    with pytest.raises(AmbiguousSend):
        await account.connector.find(chunk(room, "hello", tried_at=datetime.now(UTC)))


async def test_a_text_comes_back_that_stood_there_before(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start(streaming=True, streaming_seconds=0.5)
    assert isinstance(account.connector, EditsMessages)
    assert account.connector.capabilities.edit_interval == 0.5
    sent = await account.connector.send(chunk(room, "a"))
    for text in ("a **b**", "a", "a **b**"):
        await account.connector.edit(chunk(room, text, edits=sent.platform_message_id))
        assert server.shown(room) == [text]
    assert "<strong>b</strong>" in server.sent(room)[-1]["m.new_content"]["formatted_body"]


async def test_a_reaction_is_put_once(server: Homeserver, account: Account) -> None:
    room = await server.room()
    said = await server.say(room, "hello")
    await account.start(ack_reaction="👀")
    assert isinstance(account.connector, AcknowledgesMessages)
    place = Address(platform="matrix", channel=room)
    for _ in range(2):
        await account.connector.acknowledge(place, said)
    server.faults["send"].append(Fault.refused("M_DUPLICATE_ANNOTATION", 400))
    await account.connector.acknowledge(place, said)
    [content] = server.sent(room, "m.reaction")
    assert content["m.relates_to"] == {"rel_type": "m.annotation", "event_id": said, "key": "👀"}
    server.faults["send"].append(Fault.refused("M_FORBIDDEN"))
    with pytest.raises(PermanentSend):
        await account.connector.acknowledge(place, said)


async def test_no_reaction_is_put_where_none_is_set(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start()
    await account.connector.acknowledge(Address(platform="matrix", channel=room), "$said")
    assert server.sent(room, "m.reaction") == []


async def test_typing_ends_with_the_answer(server: Homeserver, account: Account) -> None:
    room = await server.room()
    await account.start()
    await account.connector.typing(Address(platform="matrix", channel=room))
    for number in range(2):
        await account.connector.send(chunk(room, "an answer", key=f"key{number}"))
    assert server.typing == [(room, True), (room, False)]


@pytest.mark.parametrize(
    ("answer", "header", "after"),
    [({"retry_after_ms": 1500}, "", 1.5), ({"retry_after_ms": 1500}, "3", 3), ({}, "", 10), ({}, "soon", 10)],
)
def test_how_long_to_wait_is_read(answer: Mapping[str, Any], header: str, after: float) -> None:
    failure = send_failure(classify_answer(429, {"errcode": "M_LIMIT_EXCEEDED", **answer}, header))
    assert isinstance(failure, RetryableSend)
    assert failure.retry_after == timedelta(seconds=after)


@pytest.mark.parametrize(
    ("status", "code", "expected", "scope"),
    [
        (404, "M_NOT_FOUND", PermanentSend, FailureScope.CHANNEL),
        (403, "M_USER_SUSPENDED", PermanentSend, FailureScope.ACCOUNT),
        (400, "M_BAD_JSON", PermanentSend, FailureScope.MESSAGE),
        (404, "", AmbiguousSend, None),
        (504, "M_UNKNOWN", AmbiguousSend, None),
    ],
)
def test_each_answer_has_its_class(
    status: int, code: str, expected: type[SendFailure], scope: FailureScope | None
) -> None:
    failure = send_failure(classify_answer(status, {"errcode": code}, ""))
    assert type(failure) is expected
    assert getattr(failure, "scope", None) is scope


async def test_no_log_holds_the_token_or_what_people_write(
    server: Homeserver, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1)
    logging.getLogger("mau").setLevel(1)
    room = await server.room()
    await account.start()
    server.faults["send"] += [Fault(502), Fault.refused("M_UNKNOWN_TOKEN", 401)]
    outcomes = [await attempt(account.connector, chunk(room, "my own words")) for _ in range(3)]
    await server.say(room, "her own words")
    await account.heard(1)
    told = caplog.text + repr(outcomes) + repr(account.context.states)
    assert "own words" not in told
    assert TOKEN not in told
