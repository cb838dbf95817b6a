"""Buttons below a message and what a press of one comes to, over Socket Mode and the real slack-sdk."""

import pytest

from connectors.slack.api import MAX_BUTTONS, button_blocks
from connectors.slack.inbound import parse_button_press
from connectors.slack.receive import SlackBot
from maestro.domain.errors import Backlogged
from maestro.domain.messages import Addressing, Button
from tests.support.instance import until
from tests.support.slack_app import SlackApp, chunk, slack_and_app
from tests.support.slack_server.interactions import pressed as told
from tests.support.slack_server.workspace import Json, Workspace

COLOURS = (Button(label="Red", value="Red #7"), Button(label="Dark blue", value="Dark blue #7"))
KEY = chunk("").key
US = SlackBot("default", "T1", "U0BOT", "B0BOT", "maestro")


async def put(app: SlackApp, channel: str = "C1", thread: str = "1.2") -> Json:
    """Send a message with buttons, and return it as Slack has it."""
    app.context.buttons[KEY] = COLOURS
    await app.connector.send(chunk("Which *colour*?", channel, thread, buttons=COLOURS))
    return app.slack.posted(channel)[-1]


async def test_buttons_stand_below_the_text_and_name_their_message() -> None:
    async with slack_and_app(start=False) as app:
        post = await put(app)
    section, row = post["blocks"]
    assert (section["text"]["text"], section["text"]["verbatim"]) == (post["text"], True)
    assert post["text"] == "Which _colour_?"
    assert [(one["text"]["text"], one["value"]) for one in row["elements"]] == [
        ("Red", f"{KEY}:0"),
        ("Dark blue", f"{KEY}:1"),
    ]
    assert len({one["action_id"] for one in row["elements"]}) == 2


def test_a_text_that_is_long_for_a_section_stands_in_several() -> None:
    text = "```\n" + "<x> & y\n" * 450 + "```"
    *sections, row = button_blocks(chunk(text, buttons=(*COLOURS, *COLOURS * MAX_BUTTONS)))
    shown = [section["text"]["text"] for section in sections]
    assert len(shown) > 1
    assert all(len(part) <= 3_000 and part.count("```") == 2 for part in shown)
    assert sum(part.count("&lt;x&gt;") for part in shown) == 450
    assert len(row["elements"]) == MAX_BUTTONS
    assert button_blocks(chunk(text)) == ()


@pytest.mark.parametrize(("channel", "thread"), [("C1", "1.2"), ("C1", ""), ("D1", "")])
async def test_a_press_is_acknowledged_when_it_is_in_the_inbox(channel: str, thread: str) -> None:
    async with slack_and_app() as app:
        post = await put(app, channel, thread)
        envelope = await app.slack.press(channel, "U1", post, 1)
        await app.slack.acknowledged(envelope)
        (message,) = app.context.inbox
        await app.slack.socket.redeliver(envelope)
        again = await app.slack.press(channel, "U1", post, 0)
        await app.slack.acknowledged(again)
    assert (message.content, message.user_id, message.user_name) == ("Dark blue #7", "U1", "u1")
    assert (message.address.channel, message.address.thread, message.reply_to) == (channel, thread, post["ts"])
    assert (message.is_direct, message.addressing) == (channel == "D1", Addressing.NOBODY)
    assert message.id == f"{post['ts']}:{envelope.payload['actions'][0]['action_ts']}"
    assert app.said(channel) == ["Dark blue #7", "Red #7"]


async def test_a_press_of_a_message_that_began_a_thread_belongs_where_the_message_is() -> None:
    async with slack_and_app() as app:
        post = await put(app, "C1", "")
        envelope = await app.slack.press("C1", "U1", {**post, "thread_ts": post["ts"]})
        await app.slack.acknowledged(envelope)
    assert app.context.inbox[0].address.thread == ""


async def test_a_press_that_cannot_be_kept_comes_again() -> None:
    async with slack_and_app() as app:
        post = await put(app)
        app.context.failure = Backlogged("full")
        envelope = await app.slack.press("C1", "U1", post)
        await until(lambda: app.context.refused > 0)
        app.context.failure = None
        await app.slack.socket.redeliver(envelope)
        await app.slack.acknowledged(envelope)
    assert app.said("C1") == ["Red #7"]


async def test_a_button_that_is_for_nothing_says_so_to_nobody_else() -> None:
    async with slack_and_app() as app:
        post = await put(app)
        app.context.buttons.clear()
        await app.slack.acknowledged(await app.slack.press("C1", "U1", post))
        await until(lambda: app.slack.api.whispers != [])
    (whisper,) = app.slack.api.whispers
    assert (whisper["channel"], whisper["user"], whisper["thread_ts"]) == ("C1", "U1", "1.2")
    assert "has expired" in whisper["text"]
    assert app.context.inbox == []


@pytest.mark.parametrize(
    "change",
    [
        {"type": "view_submission"},
        {"actions": []},
        {"actions": [{"type": "static_select", "value": "k:0"}]},
        {"actions": [{"type": "button", "value": "no number", "action_ts": "1.2"}]},
        {"actions": [{"type": "button", "value": "k:0", "action_ts": "soon"}]},
        {"message": None},
        {"channel": None},
    ],
)
def test_what_is_no_press_of_a_button_of_ours_is_nothing(change: Json) -> None:
    post = {"ts": "1.2", "blocks": button_blocks(chunk("?", buttons=COLOURS))}
    payload = told(Workspace(), "C1", "U1", post)
    assert parse_button_press(payload, US) is not None
    assert parse_button_press({**payload, **change}, US) is None
