"""Events and commands of Slack as messages."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from connectors.slack.receive import SlackBot, parse_message_event, parse_slash_command
from maestro.domain.messages import Addressing

US = SlackBot("default", "T1", "U0BOT", "B0BOT", "maestro")
NAMES = {"U1": "Ada"}


def event(**fields: Any) -> dict[str, Any]:
    """Return an event that tells of a message of Ada's, with these fields."""
    return {"type": "message", "channel": "C1", "user": "U1", "ts": "1700000000.000100", "text": "hello", **fields}


def test_a_message_in_a_channel_begins_a_thread() -> None:
    message = parse_message_event(event(), US, NAMES)
    assert message is not None
    assert (message.id, message.address.thread, message.reply_to) == ("1700000000.000100", "1700000000.000100", "")
    assert message.sent_at == datetime(2023, 11, 14, 22, 13, 20, 100, UTC)
    assert (message.is_direct, message.from_bot, message.user_name) == (False, False, "Ada")


def test_a_reply_belongs_to_its_thread() -> None:
    message = parse_message_event(event(thread_ts="1600000000.000001"), US, NAMES)
    assert message is not None
    assert (message.address.thread, message.reply_to) == ("1600000000.000001", "1600000000.000001")


@pytest.mark.parametrize(
    ("fields", "every_line", "addressing"),
    [
        ({}, False, Addressing.NOBODY),
        ({}, True, Addressing.ANYBODY),
        ({"text": "<@U0BOT> look"}, True, Addressing.US),
        ({"text": "look, <@U0BOT|maestro>"}, False, Addressing.US),
        ({"text": "<@U0BOT2> look"}, False, Addressing.NOBODY),
        ({"thread_ts": "1.1", "parent_user_id": "U0BOT"}, False, Addressing.REPLY),
        ({"thread_ts": "1.1", "parent_user_id": "U1"}, False, Addressing.NOBODY),
    ],
)
def test_what_is_said_to_us_is_told_apart(fields: dict[str, str], every_line: bool, addressing: Addressing) -> None:
    message = parse_message_event(event(**fields), replace(US, every_line=every_line), NAMES)
    assert message is not None
    assert message.addressing is addressing


def test_a_direct_conversation_is_flat() -> None:
    message = parse_message_event(event(channel="D1"), US, NAMES)
    assert message is not None
    assert (message.is_direct, message.address.thread) == (True, "")
    reply = parse_message_event(event(channel="D1", thread_ts="1600000000.000001"), US, NAMES)
    assert reply is not None
    assert reply.address.thread == "1600000000.000001"


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "U0BOT"},
        {"bot_id": "B0BOT", "user": ""},
        {"subtype": "channel_join"},
        {"subtype": "message_deleted"},
        {"subtype": "bot_add"},
        {"type": "reaction_added"},
        {"text": "  "},
        {"ts": ""},
        {"ts": "soon"},
        {"channel": ""},
        {"user": ""},
        {"text": "", "files": [{"id": "F1", "mode": "tombstone"}]},
    ],
)
def test_what_says_nothing_to_us_is_no_message(fields: dict[str, Any]) -> None:
    assert parse_message_event(event(**fields), US, NAMES) is None


def test_another_bot_is_known_as_one() -> None:
    message = parse_message_event(event(user="", bot_id="B9", subtype="bot_message", username="weather"), US, NAMES)
    assert message is not None
    assert (message.from_bot, message.user_id, message.user_name) == (True, "B9", "weather")


@pytest.mark.parametrize("subtype", ["file_share", "thread_broadcast", "me_message"])
def test_these_subtypes_are_messages(subtype: str) -> None:
    assert parse_message_event(event(subtype=subtype), US, NAMES) is not None


def test_files_come_by_reference() -> None:
    file = {"id": "F1", "name": "cat.png", "mimetype": "image/png", "size": 12, "url_private": "https://secret.example"}
    message = parse_message_event(event(text="", subtype="file_share", files=[file, {"id": ""}]), US, NAMES)
    assert message is not None
    assert [(one.id, one.filename, one.content_type, one.size) for one in message.attachments] == [
        ("F1", "cat.png", "image/png", 12)
    ]
    assert "secret" not in message.model_dump_json()


def test_a_change_that_slack_made_by_itself_is_no_edit() -> None:
    changed: dict[str, Any] = {"subtype": "message_changed", "message": event(), "previous_message": event()}
    assert parse_message_event(event(**changed), US, NAMES) is None
    edited = {**changed, "message": event(text="new", edited={"ts": "1700000009.000000"})}
    message = parse_message_event(event(**edited), US, NAMES)
    assert message is not None
    assert (message.content, message.edit_of) == ("new", "1700000000.000100")
    assert message.id == "1700000000.000100:1700000009.000000"
    assert parse_message_event(event(**{**edited, "previous_message": event(text="new")}), US, NAMES) is None
    assert (
        parse_message_event(event(**{**edited, "message": {**edited["message"], "user": "U0BOT"}}), US, NAMES) is None
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<@U0BOT> /stop", "/stop"),
        ("<@U0BOT>   /pair AB12", "/pair AB12"),
        ("<@U0BOT> hello", "@maestro hello"),
        ("hello <@U0BOT> /stop", "hello @maestro /stop"),
        ("<@U1> and <@U9|nine> and <@U8>", "@Ada and @nine and @U8"),
        ("<#C2|general> <#C3> <!here> <!subteam^S1|@team>", "#general #C3 @here @team"),
        ("<!date^1392734382^{date}|Feb 18>", "Feb 18"),
        (
            "<https://x.example|x.example> <https://y.example/?a=1&amp;b|why>",
            "https://x.example why (https://y.example/?a=1&b)",
        ),
        ("<mailto:a@x.example|a@x.example>", "a@x.example"),
        ("1 &lt; 2 &amp;&amp; 3 &gt; 2 &amp;lt;", "1 < 2 && 3 > 2 &lt;"),
    ],
)
def test_codes_of_slack_become_what_people_see(text: str, said: str) -> None:
    message = parse_message_event(event(text=text), US, NAMES)
    assert message is not None
    assert message.content == said


@pytest.mark.parametrize("fields", [{"command": "/dance"}, {"trigger_id": ""}, {"channel_id": ""}])
def test_a_command_that_nobody_knows_is_no_message(fields: dict[str, str]) -> None:
    command = {"command": "/stop", "trigger_id": "1.2", "channel_id": "D1", "user_id": "U1", **fields}
    assert parse_slash_command(command, US, datetime.now(UTC)) is None
