"""What was written while nobody listened: read in order, once, within the caps, and never at first sight."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.instance import until
from tests.support.memory_context import MemoryContext
from tests.support.slack_app import SlackApp, slack_and_app, slack_app
from tests.support.slack_server import Fault, SlackServer


async def known(app: SlackApp, channel: str = "C1") -> str:
    """Let a channel be known by one message, and return its time when the cursor is there."""
    ts = await app.slack.say(channel, "U1", "known")
    await until(lambda: app.context.marks.get((channel, "")) == ts)
    return ts


def old(hours: float, number: int) -> str:
    """Return the time of a message that is so old."""
    return f"{int((datetime.now(UTC) - timedelta(hours=hours)).timestamp())}.{number:06d}"


async def come_back(slack: SlackServer, context: MemoryContext, count: int, **options: Any) -> None:
    """Connect anew and return when so many messages are in the inbox."""
    async with slack_app(slack, context, **options) as app:
        await app.heard(count)
        await until(lambda: not app.connector._catch_up._unread)


async def test_messages_of_an_outage_come_in_in_order_and_once() -> None:
    async with slack_and_app() as app:
        await known(app)
        await app.stop()
        written = [await app.slack.say("C1", "U1", f"missed {n}", told=False) for n in range(230)]
        await come_back(app.slack, app.context, 231)
        await come_back(app.slack, app.context, 231)
        assert app.said("C1") == ["known", *(f"missed {n}" for n in range(230))]
        assert app.context.marks["C1", ""] == written[-1]
        assert app.context.passed_over == []


async def test_replies_in_known_threads_and_in_new_ones_are_found() -> None:
    async with slack_and_app() as app:
        ancient = app.slack.write("C1", "U1", "ancient", ts=old(2, 1))["ts"]
        for n in range(120):
            app.slack.write("C1", "U1", "unheard", ts=old(1.5, n + 2))
        await app.slack.tell("C1", app.slack.workspace.messages["C1"][0])
        await app.heard(1)
        await known(app)
        await app.stop()
        fresh = await app.slack.say("C1", "U1", "fresh", told=False)
        await app.slack.say("C1", "U1", "in the fresh thread", thread=fresh, told=False)
        await app.slack.say("C1", "U1", "in the ancient thread", thread=ancient, told=False)
        await come_back(app.slack, app.context, 5)
        assert app.said("C1") == ["ancient", "known", "fresh", "in the fresh thread", "in the ancient thread"]
        assert app.context.inbox[-1].address.thread == ancient


async def test_nothing_old_is_answered_at_first_sight() -> None:
    async with slack_and_app() as app:
        app.slack.write("C1", "U1", "before we came")
        app.context.marks["C1", "1.1"] = ""
        app.connector._catch_up.request_history_read()
        await until(lambda: not app.connector._catch_up._behind.is_set())
        await app.slack.say("C1", "U1", "hello")
        await app.heard(1)
        assert app.said("C1") == ["hello"]
        assert app.slack.called("conversations.history") == []


async def test_too_many_and_too_old_messages_are_skipped_and_recorded() -> None:
    async with slack_and_app() as app:
        app.context.marks["C1", ""] = app.context.marks["C2", ""] = old(100, 0)
        for n in range(10):
            app.slack.write("C1", "U1", f"new {n}")
            app.slack.write("C2", "U1", f"old {n}", ts=old(30 if n < 8 else 1, n))
        await app.stop()
        await come_back(app.slack, app.context, 5, catch_up_messages=3)
        assert app.said("C1") == ["new 7", "new 8", "new 9"]
        assert app.said("C2") == ["old 8", "old 9"]
        assert {(channel, count) for channel, count, _ in app.context.passed_over} == {("C1", 7), ("C2", 8)}
        await come_back(app.slack, app.context, 5, catch_up_messages=3)
        assert len(app.context.passed_over) == 2


async def test_a_new_message_waits_for_those_before_it() -> None:
    async with slack_and_app() as app:
        await known(app)
        await app.stop()
        await app.slack.say("C1", "U1", "missed", told=False)
        app.slack.hold("conversations.history")
        async with slack_app(app.slack, app.context) as again:
            await app.slack.until_called("conversations.history")
            envelope = await app.slack.tell("C1", app.slack.write("C1", "U1", "new"))
            waiting = again.connector._catch_up._waiting
            await until(lambda: "C1" in waiting or len(app.context.inbox) > 1)
            app.slack.release("conversations.history")
            await app.slack.acknowledged(envelope)
        assert app.said("C1") == ["known", "missed", "new"]


async def test_the_cursor_stays_before_what_was_not_read() -> None:
    async with slack_and_app() as app:
        first = await known(app)
        await app.stop()
        await app.slack.say("C1", "U1", "missed", told=False)
        app.slack.hold("conversations.history")
        async with slack_app(app.slack, app.context):
            await app.slack.say("C1", "U1", "new")
            await app.heard(2)
            assert app.context.marks["C1", ""] == first
        app.slack.release("conversations.history")
        await come_back(app.slack, app.context, 3)
        assert sorted(app.said("C1")) == ["known", "missed", "new"]


async def test_what_is_lost_while_a_channel_is_read_is_read_too() -> None:
    async with slack_and_app() as app:
        await known(app)
        app.context.marks["C1", "5.5"] = ""
        await app.stop()
        app.slack.hold("conversations.replies")
        async with slack_app(app.slack, app.context):
            await app.slack.until_called("conversations.replies")
            await app.slack.socket.drop()
            await until(lambda: not app.slack.socket.sockets)
            await app.slack.say("C1", "U1", "lost", told=False)
            await app.slack.connected(app.slack.socket.opened + 1)
            await app.slack.say("C1", "U1", "new")
            await app.heard(2)
            app.slack.release("conversations.replies")
            await app.heard(3)
            await until(lambda: app.context.marks["C1", ""] == app.context.inbox[1].id)
        assert sorted(app.said("C1")) == ["known", "lost", "new"]


async def test_a_thread_that_is_gone_hides_nothing_else() -> None:
    async with slack_and_app() as app:
        await known(app)
        app.context.marks["C1", "5.5"] = ""
        await app.stop()
        await app.slack.say("C1", "U1", "missed", told=False)
        await come_back(app.slack, app.context, 2)
        assert app.said("C1") == ["known", "missed"]
        assert app.slack.called("conversations.replies")[-1].arguments["ts"] == "5.5"


async def test_limits_and_faults_of_slack_are_waited_for() -> None:
    async with slack_and_app() as app:
        await known(app)
        await app.stop()
        await app.slack.say("C1", "U1", "missed", told=False)
        app.slack.fail("conversations.history", Fault.limited(0), Fault.cut_before())
        await come_back(app.slack, app.context, 2)
        assert app.said("C1") == ["known", "missed"]


async def test_a_channel_that_may_not_be_read_holds_nobody_up() -> None:
    async with slack_and_app() as app:
        await known(app)
        await known(app, "C2")
        await app.stop()
        await app.slack.say("C1", "U1", "missed", told=False)
        app.slack.fail("conversations.history", Fault.refused("not_in_channel"))
        async with slack_app(app.slack, app.context):
            await app.heard(3)
            await app.slack.say("C2", "U1", "new")
            await app.heard(4)
        assert (app.said("C1"), app.said("C2")) == (["known", "missed"], ["known", "new"])


async def test_our_own_messages_and_those_of_the_system_are_not_heard() -> None:
    async with slack_and_app() as app:
        await known(app)
        await app.stop()
        app.slack.workspace.by_bot("C1", "an answer")
        app.slack.write("C1", "U1", "has joined", subtype="channel_join")
        await app.slack.say("C1", "U1", "missed", told=False)
        await come_back(app.slack, app.context, 2)
        assert app.said("C1") == ["known", "missed"]


async def test_what_has_not_the_shape_of_a_message_holds_up_no_other() -> None:
    async with slack_and_app() as app:
        await known(app)
        await app.stop()
        app.slack.workspace.add("C1", {"user": "U1", "text": "odd", "files": [{"id": "F1", "size": "much"}]})
        await app.slack.say("C1", "U1", "missed", told=False)
        await come_back(app.slack, app.context, 2)
        assert app.said("C1") == ["known", "missed"]
