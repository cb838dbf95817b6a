"""What goes out: once, at WhatsApp's pace, within the 24 hours, each failure told apart, and settled by statuses."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from connectors.base import ConnectorState
from connectors.failures import (
    AccountRefused,
    AmbiguousSend,
    FailureScope,
    NotDispatched,
    PermanentSend,
    RetryableSend,
    SendFailure,
)
from connectors.whatsapp.api import MAX_ANSWER, answer_failure
from maestro.domain.errors import MaestroError
from maestro.domain.messages import Address, Button, IncomingMessage
from tests.support.instance import until
from tests.support.whatsapp_number import ADA, ZOE, OpenContext, WhatsAppNumber, chunk, whatsapp_and_number
from tests.support.whatsapp_server import TEMPLATE, Fault, WhatsAppServer

JPEG = b"\xff\xd8\xff\xe0 and pixels"


def wrote(context: OpenContext, hours_ago: float) -> None:
    """Let Ada have written so long ago, and nobody since."""
    context.opened = False
    address = Address(platform="whatsapp", channel=ADA)
    at = datetime.now(UTC) - timedelta(hours=hours_ago)
    context.inbox.append(IncomingMessage(id="wamid.old", address=address, user_id=ADA, content="hi", sent_at=at))


async def failed(number: WhatsAppNumber, content: str = "hello", **fields: Any) -> SendFailure:
    """Return why a send failed."""
    with pytest.raises(SendFailure) as failure:
        await number.connector.send(chunk(content, **fields))
    return failure.value


async def test_a_message_goes_under_its_key_and_previews_nothing() -> None:
    async with whatsapp_and_number(start=False) as number:
        receipt = await number.connector.send(chunk("**Hi** [x](https://x.example)", reply_to="wamid.0"))
        [sent] = number.whatsapp.sent(ADA)
        assert sent["text"] == {"body": "*Hi* x (https://x.example)", "preview_url": False}
        assert (sent["to"], sent["recipient_type"], sent["id"]) == (ADA, "individual", receipt.platform_message_id)
        assert sent["biz_opaque_callback_data"] == chunk("").key
        assert "context" not in sent
    async with whatsapp_and_number(start=False, quote_replies="always") as number:
        await number.connector.send(chunk("hi", reply_to="wamid.0"))
        await number.connector.send(chunk("hi", number=2))
        assert [sent.get("context") for sent in number.whatsapp.sent(ADA)] == [{"message_id": "wamid.0"}, None]


async def test_who_shows_no_number_is_written_to_all_the_same() -> None:
    async with whatsapp_and_number(start=False) as number:
        number.whatsapp.business.open("US.13491")
        await number.connector.send(chunk("hi", channel="US.13491"))
        [sent] = number.whatsapp.sent("US.13491")
        assert "to" not in sent


@pytest.mark.parametrize(
    ("fault", "failure", "stored"),
    [
        (Fault.limited(7), RetryableSend, 0),
        (Fault.refused(130429), RetryableSend, 0),
        (Fault.refused(131048), RetryableSend, 0),
        (Fault.refused(80007), RetryableSend, 0),
        (Fault.refused(4), RetryableSend, 0),
        (Fault(status=429), RetryableSend, 0),
        (Fault.broken(503), AmbiguousSend, 0),
        (Fault.broken(500, stores=True), AmbiguousSend, 1),
        (Fault(status=500, code=131000), AmbiguousSend, 0),
        (Fault(status=400, code=2), AmbiguousSend, 0),
        (Fault(status=200, stores=True), AmbiguousSend, 1),
        (Fault(status=200, code=131009), PermanentSend, 0),
        (Fault(status=200, code=130429), RetryableSend, 0),
        (Fault.broken(404), AmbiguousSend, 0),
        (Fault.cut_before(), AmbiguousSend, 0),
        (Fault.cut_after(), AmbiguousSend, 1),
    ],
)
async def test_a_send_is_made_once_and_says_how_it_ended(
    fault: Fault, failure: type[MaestroError], stored: int
) -> None:
    async with whatsapp_and_number(start=False) as number:
        number.whatsapp.tells = ()
        number.whatsapp.fail("messages", fault)
        assert isinstance(await failed(number), failure)
        assert len(number.whatsapp.called("messages")) == 1
        assert len(number.whatsapp.sent(ADA)) == stored


@pytest.mark.parametrize(
    ("code", "scope", "words"),
    [
        (100, FailureScope.MESSAGE, "rejects a parameter"),
        (131009, FailureScope.MESSAGE, ""),
        (131051, FailureScope.MESSAGE, ""),
        (132001, FailureScope.MESSAGE, "templateLanguage"),
        (777777, FailureScope.MESSAGE, "WhatsApp reports 777777"),
        (131026, FailureScope.CHANNEL, "not on WhatsApp"),
        (131030, FailureScope.CHANNEL, "test number"),
        (131047, FailureScope.CHANNEL, "next message opens the chat"),
        (190, FailureScope.ACCOUNT, "make a new one"),
        (10, FailureScope.ACCOUNT, "whatsapp_business_messaging"),
        (200, FailureScope.ACCOUNT, "whatsapp_business_messaging"),
        (368, FailureScope.ACCOUNT, "Account quality"),
        (131031, FailureScope.ACCOUNT, "Account quality"),
        (133010, FailureScope.ACCOUNT, "register it"),
    ],
)
async def test_a_permanent_error_says_what_is_broken_and_quotes_nobody(
    code: int, scope: FailureScope, words: str
) -> None:
    async with whatsapp_and_number(start=False) as number:
        number.whatsapp.fail("messages", Fault.refused(code))
        failure = await failed(number)
        assert isinstance(failure, PermanentSend)
        assert (failure.scope, words in str(failure), "4915" in str(failure)) == (scope, True, False)


async def test_a_wrong_number_or_token_without_a_word_is_the_accounts_trouble() -> None:
    async with whatsapp_and_number(start=False) as number:
        number.whatsapp.fail("messages", Fault.refused(100, subcode=33), Fault(status=401))
        first, second = await failed(number), await failed(number)
        assert isinstance(first, PermanentSend)
        assert isinstance(second, PermanentSend)
        assert (first.scope, second.scope) == (FailureScope.ACCOUNT, FailureScope.ACCOUNT)
        assert "phoneNumberId" in str(first)


async def test_each_refusal_for_one_person_makes_the_wait_four_times_as_long() -> None:
    async with whatsapp_and_number(start=False) as number:
        number.whatsapp.business.open("4915100000009")
        pair = [Fault.refused(131056)] * 3
        number.whatsapp.fail("messages", *pair, None, *pair[:1])  # type: ignore[arg-type]
        waits = []
        for _ in range(3):
            failure = await failed(number)
            assert isinstance(failure, RetryableSend)
            assert failure.retry_after is not None
            waits.append(failure.retry_after.total_seconds())
        assert waits == [1, 4, 16]
        await number.connector.send(chunk("hello"))
        failure = await failed(number)
        assert failure.retry_after == timedelta(seconds=1)


async def test_a_rate_limit_says_how_long_to_wait() -> None:
    async with whatsapp_and_number(start=False) as number:
        number.whatsapp.fail("messages", Fault.limited(7), Fault.refused(131048))
        assert (await failed(number)).retry_after == timedelta(seconds=7)
        assert (await failed(number)).retry_after == timedelta(minutes=5)


@pytest.mark.parametrize("asked", ["9" * 5_000, "86400000", "soon", "\u0663", "-1", ""])
async def test_no_header_makes_us_wait_for_days_or_fall_over(asked: str) -> None:
    found = answer_failure(429, {"error": {"code": 130429}}, asked)
    assert isinstance(found, RetryableSend)
    assert timedelta(0) < found.retry_after <= timedelta(hours=1)


@pytest.mark.parametrize("answer", ["[" * 100_000, "x" * (MAX_ANSWER + 1), "\xff", "7"])
async def test_an_answer_of_no_shape_leaves_doubt(answer: str) -> None:
    async with whatsapp_and_number(start=False) as number:
        number.whatsapp.fail("messages", Fault(status=200, stores=True, text=answer))
        assert isinstance(await failed(number), AmbiguousSend)


async def test_nothing_was_sent_when_nobody_listens() -> None:
    async with WhatsAppServer.running() as gone:
        url = gone.base_url
    async with whatsapp_and_number(start=False, base_url=url) as number:
        assert isinstance(await failed(number), NotDispatched)


async def test_a_token_that_is_refused_while_sending_stops_the_connector() -> None:
    async with whatsapp_and_number() as number:
        number.whatsapp.fail("messages", Fault.refused(190))
        await failed(number)
        assert number.running is not None
        with pytest.raises(AccountRefused, match="make a new one"):
            await number.running
        number.running = None
        assert "make a new one" in await number.told(ConnectorState.FAILED)


async def test_messages_to_one_person_keep_whatsapps_pace() -> None:
    async with whatsapp_and_number(start=False, pair_seconds=0.2) as number:
        began = time.monotonic()
        for n in (1, 2):
            await number.connector.send(chunk("hello", number=n))
        assert number.whatsapp.called("messages")[1].at - began >= 0.2


async def test_a_text_that_is_too_long_is_refused_before_it_is_sent() -> None:
    async with whatsapp_and_number(start=False) as number:
        failure = await failed(number, "# " + "x" * 4095)
        assert isinstance(failure, PermanentSend)
        assert (failure.scope, "4,097 characters" in str(failure)) == (FailureScope.MESSAGE, True)
        assert number.whatsapp.calls == []


# The 24 hours.


@pytest.mark.parametrize("hours", [24.1, None])
async def test_after_a_day_nothing_is_sent_without_a_template(hours: float | None) -> None:
    async with whatsapp_and_number(start=False) as number:
        number.context.opened = False
        if hours is not None:
            wrote(number.context, hours)
        failure = await failed(number)
        assert isinstance(failure, PermanentSend)
        assert (failure.scope, "next message opens the chat" in str(failure)) == (FailureScope.CHANNEL, True)
        assert number.whatsapp.calls == []


async def test_whoever_has_an_old_number_now_is_answered_there() -> None:
    """Numbers are given out again: what is said to the next one is nothing for who had it before."""
    async with whatsapp_and_number(start=False) as number:
        wrote(number.context, 1)
        await number.context.moved(ADA, ZOE)
        await number.connector.send(chunk("an answer"))
        assert (number.whatsapp.texts(ADA), number.whatsapp.texts(ZOE)) == (["an answer"], [])


async def test_within_a_day_it_is_sent_as_it_is() -> None:
    async with whatsapp_and_number(start=False, template=TEMPLATE) as number:
        wrote(number.context, 23.9)
        await number.connector.send(chunk("hello"))
        assert [sent["type"] for sent in number.whatsapp.sent(ADA)] == ["text"]


async def test_after_a_day_it_goes_as_a_template_in_one_line() -> None:
    async with whatsapp_and_number(start=False, template=TEMPLATE) as number:
        wrote(number.context, 30)
        number.whatsapp.business.open(ADA, 30 * 3600)
        await number.connector.send(chunk("**News**\n\n- one\t      two\n" + "x" * 2000))
        [said] = number.whatsapp.texts(ADA)
        assert (said[:18], said[-1], len(said)) == ("*News* • one two x", "…", 1024)
        failure = await failed(number, "all of it", filename="answer.md")
        assert isinstance(failure, PermanentSend)
        # Words still go there, so that the chat is not closed.
        assert (failure.scope, "cannot contain a file" in str(failure)) == (FailureScope.MESSAGE, True)


# Buttons.


def buttons(*labels: str) -> tuple[Button, ...]:
    """Return buttons that say their labels."""
    return tuple(Button(label=label, value=label) for label in labels)


async def test_three_short_choices_are_buttons() -> None:
    async with whatsapp_and_number(start=False) as number:
        await number.connector.send(chunk("Go **on**?", buttons=buttons("Yes", "No", "Later")))
        [sent] = number.whatsapp.sent(ADA)
        assert sent["interactive"]["body"] == {"text": "Go *on*?"}
        replies = [button["reply"] for button in sent["interactive"]["action"]["buttons"]]
        key = chunk("").key
        assert [(one["id"], one["title"]) for one in replies] == [
            (f"{key}:0", "Yes"),
            (f"{key}:1", "No"),
            (f"{key}:2", "Later"),
        ]
        assert all(len(one["id"]) <= 27 for one in replies)


@pytest.mark.parametrize(
    "labels", [("1", "2", "3", "4"), ("a label of 21 letters", "No"), ("Yes", "Yes"), tuple(str(n) for n in range(10))]
)
async def test_more_choices_or_longer_ones_are_a_list(labels: tuple[str, ...]) -> None:
    async with whatsapp_and_number(start=False) as number:
        await number.connector.send(chunk("Which?", buttons=buttons(*labels)))
        [sent] = number.whatsapp.sent(ADA)
        [section] = sent["interactive"]["action"]["sections"]
        assert [row["title"] for row in section["rows"]] == list(labels)


async def test_a_long_label_stands_in_the_list_in_full() -> None:
    async with whatsapp_and_number(start=False) as number:
        label = "Deploy the new version to everybody at once, now"
        await number.connector.send(chunk("Which?", buttons=buttons(label, "No")))
        [sent] = number.whatsapp.sent(ADA)
        [first, second] = sent["interactive"]["action"]["sections"][0]["rows"]
        assert (first["title"], first["description"]) == ("Deploy the new version…", label)
        assert "description" not in second


async def test_a_text_too_long_for_buttons_goes_without() -> None:
    async with whatsapp_and_number(start=False) as number:
        await number.connector.send(chunk("x" * 1025, buttons=buttons("Yes", "No")))
        assert [sent["type"] for sent in number.whatsapp.sent(ADA)] == ["text"]


async def test_who_presses_a_button_says_what_it_says() -> None:
    async with whatsapp_and_number() as number:
        asked = chunk("Go on?", buttons=buttons("Yes", "No"))
        number.context.buttons[asked.key] = (Button(label="Yes", value="1"), Button(label="No", value="2"))
        await number.connector.send(asked)
        [sent] = number.whatsapp.sent(ADA)
        pressed = number.whatsapp.press(ADA, sent, 1)
        del number.context.buttons[asked.key]
        number.whatsapp.press(ADA, sent, 0)
        first, second = (await number.heard(2))[:2]
        assert (first.content, first.reply_to, first.id) in (("2", sent["id"], pressed), ("No", sent["id"], pressed))
        assert second.content == "Yes"


# Files.


@pytest.mark.parametrize(
    ("content_type", "size", "caption", "shape"),
    [
        ("image/jpeg", 10, "look", "image"),
        ("image/png", 10, "", "image"),
        ("image/jpeg", 5 * 1024**2 + 1, "look", "document"),
        ("audio/mpeg", 10, "", "audio"),
        ("audio/mpeg", 10, "with words", "document"),
        ("video/mp4", 10, "look", "video"),
        ("video/mp4", 16 * 1024**2 + 1, "", "document"),
        ("application/pdf", 10, "read", "document"),
        ("text/csv", 10, "", "document"),
    ],
)
async def test_a_file_goes_as_what_it_is(
    tmp_path: Path, content_type: str, size: int, caption: str, shape: str
) -> None:
    async with whatsapp_and_number(start=False) as number:
        path = tmp_path / "kept"
        path.write_bytes(b"x" * size)
        message = chunk(caption, path=path, filename="the file", content_type=content_type)
        await number.connector.send(message)
        [sent] = number.whatsapp.sent(ADA)
        part = sent[shape]
        assert (sent["type"], part.get("caption", "")) == (shape, caption)
        assert part.get("filename") == ("the file" if shape == "document" else None)
        assert len(number.whatsapp.business.files[part["id"]].content) == size


async def test_a_long_answer_goes_as_a_file() -> None:
    async with whatsapp_and_number(start=False) as number:
        await number.connector.send(chunk("# All of it", filename="answer.md"))
        [sent] = number.whatsapp.sent(ADA)
        file = number.whatsapp.business.files[sent["document"]["id"]]
        assert (file.content, sent["document"]["filename"]) == (b"# All of it", "answer.md")
        assert "caption" not in sent["document"]


async def test_a_caption_that_is_too_long_is_cut_and_shows_it(tmp_path: Path) -> None:
    async with whatsapp_and_number(start=False) as number:
        (tmp_path / "kept").write_bytes(JPEG)
        words = chunk("x" * 2000, path=tmp_path / "kept", filename="a.jpg", content_type="image/jpeg")
        await number.connector.send(words)
        [caption] = number.whatsapp.texts(ADA)
        assert (len(caption), caption[-1]) == (1024, "…")


async def test_a_file_whose_message_failed_is_not_brought_again() -> None:
    async with whatsapp_and_number(start=False) as number:
        number.whatsapp.fail("messages", Fault.limited(1))
        assert isinstance(await failed(number, "long", filename="answer.md"), RetryableSend)
        await number.connector.send(chunk("long", filename="answer.md"))
        assert len(number.whatsapp.called("media")) == 1
        await number.connector.send(chunk("another", filename="answer.md", number=2))
        assert len(number.whatsapp.called("media")) == 2


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        (Fault.broken(), NotDispatched),
        (Fault.cut_after(), NotDispatched),
        (Fault.limited(1), RetryableSend),
        (Fault.refused(100), PermanentSend),
    ],
)
async def test_a_file_that_could_not_be_brought_was_surely_not_sent(fault: Fault, failure: type[SendFailure]) -> None:
    async with whatsapp_and_number(start=False) as number:
        number.whatsapp.fail("media", fault)
        assert isinstance(await failed(number, "long", filename="answer.md"), failure)
        assert number.whatsapp.called("messages") == []


async def test_a_file_of_a_kind_that_whatsapp_does_not_take_is_named(tmp_path: Path) -> None:
    async with whatsapp_and_number(start=False) as number:
        (tmp_path / "kept").write_bytes(b"PK")
        message = {"path": tmp_path / "kept", "filename": "all.zip", "content_type": "application/zip"}
        failure = await failed(number, "", **message)
        assert (type(failure), str(failure)) == (PermanentSend, "WhatsApp accepts no file of the type application/zip")


# Courtesies.


async def test_typing_shows_below_the_newest_message_and_says_that_it_was_read() -> None:
    async with whatsapp_and_number() as number:
        place = chunk("").address
        await number.connector.typing(place)
        assert number.whatsapp.called("receipt") == []
        for text in ("one", "two"):
            newest = number.whatsapp.say(ADA, text)
        await number.heard(2)
        await until(lambda: all(one.taken.is_set() for one in number.whatsapp.postman.postings))
        await number.connector.typing(place)
        [receipt] = number.whatsapp.business.read
        assert (receipt["message_id"], receipt["typing_indicator"]) == (newest, {"type": "text"})
        number.whatsapp.fail("receipt", Fault.broken())
        with pytest.raises(MaestroError):
            await number.connector.typing(place)


async def test_an_acknowledgement_is_a_reaction_where_one_is_set() -> None:
    async with whatsapp_and_number(start=False) as number:
        await number.connector.acknowledge(chunk("").address, "wamid.1")
        assert number.whatsapp.calls == []
    async with whatsapp_and_number(start=False, ack_reaction="👀") as number:
        await number.connector.acknowledge(chunk("").address, "wamid.1")
        [reaction] = number.whatsapp.business.reactions
        assert reaction["reaction"] == {"message_id": "wamid.1", "emoji": "👀"}
        assert (reaction["to"], "biz_opaque_callback_data" in reaction) == (ADA, False)
        assert reaction["recipient_type"] == "individual"
        number.whatsapp.fail("reaction", Fault.broken())
        with pytest.raises(MaestroError):
            await number.connector.acknowledge(chunk("").address, "wamid.1")
