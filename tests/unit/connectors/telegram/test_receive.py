"""What Telegram tells, as messages."""

from datetime import UTC, datetime
from typing import Any

import pytest
from telegram import Update

from connectors.telegram.receive import (
    TelegramBot,
    join_album,
    parse_button_press,
    parse_message_update,
    parse_migration,
)
from maestro.domain.messages import Addressing, IncomingMessage
from tests.support.telegram_server import ADA
from tests.support.telegram_server.chats import Chats

Json = dict[str, Any]

US = TelegramBot("default", 4200000001, "maestro_bot")
GROUP = -100200
US_SHOWN = {"id": US.id, "is_bot": True, "first_name": "Maestro", "username": US.name}


def told(chat: int, text: str, us: TelegramBot = US, kind: str = "message", **extra: Any) -> IncomingMessage | None:
    """Return what is heard when Ada writes."""
    return parse_message_update(update(chat, text, kind, **extra), us)


def update(chat: int, text: str, kind: str = "message", **extra: Any) -> Update:
    return Update.de_json({"update_id": 9, kind: Chats().write(chat, ADA, text, **extra)}, None)


def content(text: str, chat: int = GROUP) -> str | None:
    message = told(chat, text)
    return message.content if message is not None else None


def test_a_direct_message() -> None:
    message = told(ADA, "hello 🎉")
    assert message is not None
    assert (message.id, message.content, message.user_id, message.user_name) == ("1", "hello 🎉", str(ADA), "Ada")
    assert (message.address.channel, message.address.thread, message.is_direct) == (str(ADA), "", True)
    assert (message.from_bot, message.addressing, message.reply_to) == (False, Addressing.NOBODY, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/stop", "/stop"),
        ("/stop@maestro_bot", "/stop"),
        ("/Stop@Maestro_Bot", "/Stop"),
        ("@maestro_bot /stop", "/stop"),
        ("/stop@other_bot", None),
        ("/pair@maestro_bot ABCD2345", "/pair ABCD2345"),
        ("/start", "/start"),
        ("/start ABCD2345", "/pair ABCD2345"),
        ("/start abcd-2345", "/pair abcd-2345"),
        ("/start campaign", "/start campaign"),
        ("@maestro_bot what is /stop", "@maestro_bot what is /stop"),
        ("see /etc/hosts@home", "see /etc/hosts@home"),
    ],
)
def test_commands_are_control_words_and_those_for_others_are_not_for_us(text: str, said: str | None) -> None:
    assert content(text) == said


def test_in_a_direct_chat_there_is_no_other_bot() -> None:
    assert content("/path@somebody hello", ADA) == "/path@somebody hello"


@pytest.mark.parametrize(
    ("text", "extra", "addressing"),
    [
        ("🎉 @maestro_bot hello", {}, Addressing.US),
        ("@MAESTRO_bot hello", {}, Addressing.US),
        ("@maestro_bot2 hello", {}, Addressing.NOBODY),
        ("/status@maestro_bot", {}, Addressing.US),
        ("hello", {}, Addressing.NOBODY),
        (
            "you there",
            {"entities": [{"type": "text_mention", "offset": 0, "length": 3, "user": US_SHOWN}]},
            Addressing.US,
        ),
    ],
)
def test_who_is_meant(text: str, extra: Json, addressing: Addressing) -> None:
    message = told(GROUP, text, **extra)
    assert message is not None
    assert message.addressing is addressing


def test_a_name_below_a_picture_counts() -> None:
    photo: Json = {"photo": [{"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1}]}
    said: Json = {"caption": "@maestro_bot look", "caption_entities": [{"type": "mention", "offset": 0, "length": 12}]}
    message = told(GROUP, "", **photo, **said)
    assert message is not None
    assert (message.addressing, message.content) == (Addressing.US, "@maestro_bot look")


def test_links_have_their_addresses() -> None:
    links = [
        {"type": "text_link", "offset": 3, "length": 4, "url": "https://x.example"},
        {"type": "text_link", "offset": 12, "length": 5, "url": "https://y.example"},
    ]
    message = told(ADA, "🎉 here and there", entities=links)
    assert message is not None
    assert message.content == "🎉 here (https://x.example) and there (https://y.example)"


def test_every_line_where_none_need_mention_us() -> None:
    message = told(GROUP, "hello", TelegramBot("default", 1, "maestro_bot", every_line=True))
    assert message is not None
    assert message.addressing is Addressing.ANYBODY


def test_a_reply_to_us() -> None:
    answered: Json = {
        "message_id": 7,
        "date": 1,
        "chat": {"id": GROUP, "type": "supergroup"},
        "from": US_SHOWN,
        "text": "x",
    }
    message = told(GROUP, "why", reply_to_message=answered)
    assert message is not None
    assert (message.addressing, message.reply_to) == (Addressing.REPLY, "7")


def test_in_a_topic_its_beginning_is_no_reply() -> None:
    begun: Json = {"forum_topic_created": {"name": "x", "icon_color": 1}, "message_id": 7, "date": 1, "from": US_SHOWN}
    begun["chat"] = {"id": GROUP, "type": "supergroup"}
    message = told(GROUP, "hi", message_thread_id=7, is_topic_message=True, reply_to_message=begun)
    assert message is not None
    assert (message.address.thread, message.reply_to, message.addressing) == ("7", "", Addressing.NOBODY)


def test_replies_in_a_group_without_topics_are_no_thread() -> None:
    message = told(GROUP, "hi", message_thread_id=7)
    assert message is not None
    assert message.address.thread == ""


def test_an_edit() -> None:
    message = told(ADA, "better", kind="edited_message", edit_date=1_800_000_000)
    assert message is not None
    assert (message.id, message.edit_of, message.content) == ("1:1800000000.9", "1", "better")


def test_what_changes_by_itself_is_no_edit() -> None:
    moving: Json = {"location": {"latitude": 1, "longitude": 2}, "edit_date": 1_800_000_000}
    assert told(ADA, "", kind="edited_message", **moving) is None
    assert told(ADA, "not edited by anybody", kind="edited_message") is None


def test_our_own_and_other_bots() -> None:
    other: Json = {"from": {"id": 5, "is_bot": True, "first_name": "Bot"}}
    ours: Json = {"from": US_SHOWN}
    heard_of = told(GROUP, "hi", **other)
    assert heard_of is not None
    assert heard_of.from_bot
    assert told(GROUP, "hi", **ours) is None


def test_an_anonymous_admin_is_the_group_and_no_bot() -> None:
    bot: Json = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
    chat: Json = {"id": GROUP, "type": "supergroup", "title": "Square"}
    by: Json = {"from": bot, "sender_chat": chat, "author_signature": "chief"}
    message = told(GROUP, "hi", **by)
    assert message is not None
    assert (message.user_id, message.user_name, message.from_bot) == (str(GROUP), "chief", False)


def test_what_telegram_copies_from_a_channel_nobody_said_here() -> None:
    channel: Json = {"id": -100300, "type": "channel", "title": "News"}
    message = told(GROUP, "hi", sender_chat=channel, is_automatic_forward=True)
    assert message is not None
    assert message.from_bot


def test_a_post_in_a_channel() -> None:
    channel: Json = {"id": GROUP, "type": "channel", "title": "News"}
    post = {"message_id": 3, "date": 1, "chat": channel, "sender_chat": channel, "text": "hi"}
    message = parse_message_update(Update.de_json({"update_id": 1, "channel_post": post}, None), US)
    assert message is not None
    assert (message.user_id, message.user_name, message.is_direct) == (str(GROUP), "News", False)


def file(**more: Any) -> Json:
    shape = {"width": 1, "height": 1, "length": 1, "duration": 1}
    return {"file_id": "F" * 120, "file_unique_id": "u", "file_size": 5, **shape, **more}


STICKER = {"type": "regular", "is_animated": False, "is_video": False, "emoji": "🙂"}


@pytest.mark.parametrize(
    ("kind", "shown", "name", "content_type"),
    [
        ("photo", [file(file_id="small"), file()], "photo-1.jpg", "image/jpeg"),
        ("voice", file(), "voice-1.ogg", "audio/ogg"),
        ("audio", file(mime_type="audio/mp4", file_name="a.m4a"), "a.m4a", "audio/mp4"),
        ("video", file(), "video-1.mp4", "video/mp4"),
        ("video_note", file(), "video-note-1.mp4", "video/mp4"),
        ("document", file(file_name="r.pdf", mime_type="application/pdf"), "r.pdf", "application/pdf"),
        ("sticker", file(**STICKER), "sticker-1.webp", "image/webp"),
    ],
)
def test_files_are_references(kind: str, shown: Any, name: str, content_type: str) -> None:
    message = told(ADA, "", **{kind: shown})
    assert message is not None
    [found] = message.attachments
    assert (found.id, found.filename, found.content_type, found.size) == ("F" * 120, name, content_type, 5)


@pytest.mark.parametrize(
    ("kind", "shown", "words"),
    [
        ("location", {"latitude": 52.5, "longitude": 13.4}, "[location: 52.5, 13.4]"),
        (
            "venue",
            {"location": {"latitude": 52.5, "longitude": 13.4}, "title": "Zoo", "address": "Budapester Str."},
            "[place: Zoo, Budapester Str. (52.5, 13.4)]",
        ),
        ("contact", {"first_name": "Zoe", "phone_number": "+49 1"}, "[contact: Zoe, +49 1]"),
        ("dice", {"emoji": "🎲", "value": 4}, "[🎲 4]"),
        ("sticker", file(**STICKER | {"is_animated": True}), "[sticker 🙂]"),
    ],
)
def test_what_has_no_words_is_told_in_brackets(kind: str, shown: Any, words: str) -> None:
    message = told(ADA, "", **{kind: shown})
    assert message is not None
    assert message.content == words


@pytest.mark.parametrize("service", [{"new_chat_title": "x"}, {"left_chat_member": US_SHOWN}, {"pinned_message": None}])
def test_announcements_say_nothing(service: Json) -> None:
    assert told(GROUP, "", **service) is None


def test_an_album_is_one_message() -> None:
    parts = [told(ADA, "", photo=[file(file_id=name)], caption=said) for name, said in (("a", ""), ("b", "both"))]
    whole = join_album([one for one in parts if one is not None])
    assert ([one.id for one in whole.attachments], whole.content, whole.id) == (["a", "b"], "both", "1")


@pytest.mark.parametrize(
    ("chat", "service"), [(-5, {"migrate_to_chat_id": GROUP}), (GROUP, {"migrate_from_chat_id": -5})]
)
def test_a_group_that_moves(chat: int, service: Json) -> None:
    told_of = update(chat, "", **service)
    assert parse_migration(told_of) == ("-5", str(GROUP))
    assert parse_message_update(told_of, US) is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [("key:0", ("key", 0)), ("key:12", ("key", 12)), ("key:x", ("key", -1)), ("", ("", -1)), ("k:99999", ("k", -1))],
)
def test_a_press(data: str, expected: tuple[str, int]) -> None:
    message = Chats().write(GROUP, ADA, "pick", message_thread_id=4, is_topic_message=True)
    query = {"id": "77", "from": Chats().person(ADA), "chat_instance": "1", "data": data, "message": message}
    found = parse_button_press(Update.de_json({"update_id": 1, "callback_query": query}, None), US, datetime.now(UTC))
    assert found is not None
    assert (found.key, found.number) == expected
    assert (found.message.address.channel, found.message.address.thread) == (str(GROUP), "4")
