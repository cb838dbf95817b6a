"""What people send, as messages, and what Meta says of ours, as reports."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.whatsapp.api import describe_errors
from connectors.whatsapp.receive import (
    UNKNOWN,
    NumberChange,
    SkippedEvent,
    StatusReport,
    WhatsAppMessage,
    WhatsAppNumber,
    parse_button_press,
    parse_events,
)
from maestro.domain.messages import IncomingMessage, ReceiptState

US = WhatsAppNumber("default", "1")
ADA = "4915100000001"
Json = dict[str, Any]


def change(**value: Any) -> Json:
    """Return a request about our number."""
    metadata = {"phone_number_id": "1"}
    return {"entry": [{"changes": [{"field": "messages", "value": {"metadata": metadata, **value}}]}]}


def wrote(kind: str, part: Any, **extra: Any) -> Json:
    """Return a request in which Ada sends something."""
    message = {"from": ADA, "id": "wamid.1", "timestamp": "1700000000", "type": kind, kind: part, **extra}
    return change(contacts=[{"wa_id": ADA, "profile": {"name": "Ada"}}], messages=[message])


def said(kind: str, part: Any, **extra: Any) -> IncomingMessage:
    """Return the message that this is."""
    [one] = parse_events(wrote(kind, part, **extra), US)
    assert isinstance(one, WhatsAppMessage)
    return one.message


def test_a_text_is_who_wrote_it_where_and_when() -> None:
    message = said("text", {"body": "hello"}, context={"from": "1555", "id": "wamid.0"})
    assert (message.id, message.content, message.user_id, message.user_name) == ("wamid.1", "hello", ADA, "Ada")
    assert (message.address.platform, message.address.account, message.address.channel) == ("whatsapp", "default", ADA)
    assert message.sent_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert (message.is_direct, message.reply_to, message.from_bot) == (True, "wamid.0", False)


def test_who_shows_no_number_has_an_id_all_the_same() -> None:
    message = {"from_user_id": "US.13491", "id": "wamid.1", "timestamp": "1", "type": "text", "text": {"body": "hi"}}
    contacts = [{"user_id": "US.13491", "profile": {"name": "Zoe"}}]
    [one] = parse_events(change(contacts=contacts, messages=[message]), US)
    assert isinstance(one, WhatsAppMessage)
    assert (one.message.user_id, one.message.address.channel, one.message.user_name) == ("US.13491", "US.13491", "Zoe")


@pytest.mark.parametrize(
    ("kind", "part", "file"),
    [
        ("image", {"id": "9", "mime_type": "image/jpeg", "caption": "look"}, ("9", "", "image/jpeg", "look")),
        ("audio", {"id": "9", "mime_type": "audio/ogg; codecs=opus", "voice": True}, ("9", "", "audio/ogg", "")),
        ("video", {"id": "9", "mime_type": "video/mp4"}, ("9", "", "video/mp4", "")),
        ("sticker", {"id": "9", "mime_type": "image/webp", "animated": False}, ("9", "", "image/webp", "")),
        ("document", {"id": "9", "mime_type": "text/csv", "filename": "a.csv"}, ("9", "a.csv", "text/csv", "")),
    ],
)
def test_files_come_by_reference_with_their_caption(kind: str, part: Json, file: tuple[str, ...]) -> None:
    message = said(kind, part)
    [attachment] = message.attachments
    assert (attachment.id, attachment.filename, attachment.content_type, message.content) == file


@pytest.mark.parametrize(
    ("kind", "part", "content"),
    [
        ("location", {"latitude": 52.5, "longitude": 13.4}, "[location: 52.5, 13.4]"),
        (
            "location",
            {"latitude": "52.5", "longitude": 13.4, "name": "Zoo", "address": "Berlin"},
            "[location: 52.5, 13.4, Zoo, Berlin]",
        ),
        (
            "contacts",
            [{"name": {"formatted_name": "Bob"}, "phones": [{"phone": "+1 555"}]}, {"name": {}}],
            "[contact: Bob, +1 555]\n[contact: ]",
        ),
        ("order", {"product_items": [{}, {}], "text": "soon please"}, "[an order of 2 products] soon please"),
        ("order", {"product_items": [{}]}, "[an order of 1 product]"),
        ("interactive", {"type": "nfm_reply", "nfm_reply": {"body": "Sent"}}, "[a filled-in form: Sent]"),
        ("unsupported", {}, UNKNOWN),
        ("poll_of_next_year", {}, UNKNOWN),
    ],
)
def test_what_is_no_text_is_said_in_brackets(kind: str, part: Any, content: str) -> None:
    assert said(kind, part).content == content


def test_a_message_that_meta_could_not_read_is_answered_all_the_same() -> None:
    message = {"from": ADA, "id": "wamid.1", "timestamp": "1", "type": "unsupported", "errors": [{"code": 131051}]}
    [one] = parse_events(change(messages=[message]), US)
    assert isinstance(one, WhatsAppMessage)
    assert one.message.content == UNKNOWN


@pytest.mark.parametrize(
    ("kind", "part"),
    [("reaction", {"message_id": "wamid.0", "emoji": "👍"}), ("revoke", {"original_message_id": "wamid.0"})],
)
def test_reactions_and_deletions_are_no_messages(kind: str, part: Json) -> None:
    assert list(parse_events(wrote(kind, part), US)) == []


def test_an_edit_changes_the_text_of_its_message() -> None:
    inner = {"type": "text", "text": {"body": "second"}, "context": {"id": "wamid.8"}}
    message = said("edit", {"original_message_id": "wamid.0", "message": inner})
    assert (message.id, message.edit_of, message.content, message.user_name) == ("wamid.1", "wamid.0", "second", "Ada")


def test_who_changes_their_number_goes_on_under_it() -> None:
    body = {"body": "Ada changed", "wa_id": "4915100000009", "type": "user_changed_number"}
    assert list(parse_events(wrote("system", body), US)) == [NumberChange(ADA, "4915100000009")]
    assert list(parse_events(wrote("system", {"type": "something_else", "wa_id": "1"}), US)) == []


def test_a_group_is_no_place_for_us() -> None:
    assert list(parse_events(wrote("text", {"body": "x"}, group_id="G1"), US)) == [SkippedEvent("a message in a group")]


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("interactive", {"type": "button_reply", "button_reply": {"id": "abc123:1", "title": "No"}}),
        ("interactive", {"type": "list_reply", "list_reply": {"id": "abc123:1", "title": "No", "description": "No!"}}),
        ("button", {"payload": "abc123:1", "text": "No"}),
    ],
)
def test_a_pressed_button_brings_back_its_key_and_number(kind: str, part: Json) -> None:
    [one] = parse_events(wrote(kind, part, context={"id": "wamid.0"}), US)
    assert isinstance(one, WhatsAppMessage)
    assert (one.press, one.message.content, one.message.reply_to) == (("abc123", 1), "No", "wamid.0")


@pytest.mark.parametrize("other", ["", "yes", "key:", "key:x", "k" * 26 + ":1", "key:123", "a b:1", "key:1\n"])
def test_a_button_of_somebody_else_is_its_title(other: str) -> None:
    assert parse_button_press(other) is None


@pytest.mark.parametrize(
    ("status", "standing"),
    [
        ("sent", ReceiptState.SENT),
        ("delivered", ReceiptState.DELIVERED),
        ("read", ReceiptState.READ),
        ("played", ReceiptState.READ),
        ("failed", ReceiptState.FAILED),
    ],
)
def test_a_status_tells_of_a_message_of_ours(status: str, standing: ReceiptState) -> None:
    told = {"id": "wamid.5", "status": status, "recipient_id": ADA, "biz_opaque_callback_data": "key1"}
    [one] = parse_events(change(statuses=[told]), US)
    assert isinstance(one, StatusReport)
    assert (one.key, one.report.platform_message_id, one.report.standing) == ("key1", "wamid.5", standing)
    assert bool(one.report.error) == (standing is ReceiptState.FAILED)


@pytest.mark.parametrize("key", ["", "not ours", "k" * 26, "ключ"])
def test_a_status_of_somebody_elses_message_is_passed_over(key: str) -> None:
    told = {"id": "wamid.5", "status": "sent", "biz_opaque_callback_data": key}
    assert list(parse_events(change(statuses=[told, {"id": "wamid.6", "status": "sent"}]), US)) == []
    assert (
        list(parse_events(change(statuses=[{**told, "biz_opaque_callback_data": "k", "status": "warning"}]), US)) == []
    )


def test_why_a_message_failed_is_said_in_our_own_words() -> None:
    errors = [{"code": 131026, "title": f"to {ADA}", "error_data": {"details": f"{ADA} is not there"}}]
    assert "not on WhatsApp" in describe_errors(errors)
    assert ADA not in describe_errors(errors)
    for unknown in (None, [], [{"code": "x"}], ["x"], {"code": 1}):
        assert describe_errors(unknown) == "WhatsApp could not deliver the message, and gives no reason"
    assert describe_errors([{"code": 999}]) == "WhatsApp reports 999"


def test_what_meta_complains_of_is_noted_and_nothing_more() -> None:
    [one] = parse_events(change(errors=[{"code": 130429, "title": "slow down"}]), US)
    assert one == SkippedEvent("WhatsApp reports 130429: the number has sent too many messages in a short time")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=10,
)
KINDS = st.sampled_from(["text", "image", "interactive", "button", "location", "contacts", "order", "edit", "system"])


@given(JSON, KINDS, JSON)
def test_no_shape_stops_what_comes_with_it(part: Any, kind: str, stamp: Any) -> None:
    odd = {"from": ADA, "id": "wamid.2", "timestamp": stamp, "type": kind, kind: part}
    good = {"from": ADA, "id": "wamid.1", "timestamp": "1", "type": "text", "text": {"body": "sane"}}
    found = list(parse_events(change(messages=[odd, part, good], contacts=part), US))
    assert isinstance(found[-1], WhatsAppMessage)
    assert found[-1].message.content == "sane"
