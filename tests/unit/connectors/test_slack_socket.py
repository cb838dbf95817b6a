"""Socket Mode with the real slack-sdk: what is heard, when it is acknowledged, and how the connection is mended."""

import asyncio

import pytest

from connectors.base import ConnectorState
from connectors.failures import AccountRefused
from maestro.domain.errors import Backlogged
from tests.support.instance import until
from tests.support.slack_app import slack_and_app
from tests.support.slack_server import BOT_TOKEN, Fault


async def test_a_message_is_in_the_inbox_before_it_is_acknowledged() -> None:
    async with slack_and_app() as app:
        app.context.before_accept = asyncio.Event()
        written = app.slack.write("C1", "U1", "hello <@U0BOT> &amp; all")
        envelope = await app.slack.tell("C1", written)
        await app.slack.until_called("users.info")
        assert not envelope.acknowledged.is_set()
        app.context.before_accept.set()
        await app.slack.acknowledged(envelope)
        (message,) = app.context.inbox
    assert (message.id, message.user_id, message.user_name) == (written["ts"], "U1", "Ada")
    assert (message.content, message.address.thread) == ("hello @maestro & all", written["ts"])


async def test_an_envelope_that_comes_three_times_is_one_message_and_acknowledged_each_time() -> None:
    async with slack_and_app() as app:
        envelope = await app.slack.tell("C1", app.slack.write("C1", "U1", "once"))
        for _ in range(2):
            await app.slack.acknowledged(envelope)
            envelope.acknowledged.clear()
            await app.slack.socket.redeliver(envelope)
        await app.slack.acknowledged(envelope)
        assert app.said("C1") == ["once"]
        assert len(set(envelope.ids)) == 3


async def test_a_mention_that_comes_as_two_events_is_one_message() -> None:
    async with slack_and_app() as app:
        written = app.slack.write("C1", "U1", "<@U0BOT> hello")
        first = await app.slack.tell("C1", written)
        second = await app.slack.tell("C1", written, "app_mention")
        await app.slack.acknowledged(first)
        await app.slack.acknowledged(second)
        assert app.said("C1") == ["@maestro hello"]


@pytest.mark.parametrize("failure", [Backlogged("full"), OSError("the disk is gone")])
async def test_what_could_not_be_kept_is_not_acknowledged_and_comes_again(failure: Exception) -> None:
    async with slack_and_app() as app:
        app.context.failure = failure
        envelope = await app.slack.tell("C1", app.slack.write("C1", "U1", "first"))
        later = await app.slack.command("C1", "U1", "/status")
        await app.slack.until_called("users.info")
        app.context.failure = None
        await app.slack.socket.redeliver(later)
        await app.slack.acknowledged(later)
        assert not envelope.acknowledged.is_set()
        await app.slack.socket.redeliver(envelope)
        await app.slack.acknowledged(envelope)
        assert sorted(app.said("C1")) == ["/status", "first"]


async def test_messages_of_a_channel_come_in_in_the_order_they_were_written() -> None:
    """The name of somebody new takes long to learn."""
    async with slack_and_app() as app:
        await app.slack.say("C1", "U1", "0")
        await app.heard(1)
        app.slack.hold("users.info")
        await app.slack.say("C1", "UNEW", "1")
        for number in range(2, 30):
            await app.slack.say("C1", "U1", str(number))
        await app.heard(30)
        assert app.said("C1") == [str(number) for number in range(30)]


async def test_a_connection_that_slack_refreshes_goes_on() -> None:
    async with slack_and_app() as app:
        await app.slack.socket.refresh()
        await app.slack.connected(2)
        await app.slack.say("D1", "U1", "still there?")
        (message,) = await app.heard(1)
        assert message.is_direct
        assert not message.address.thread


async def test_a_connection_that_is_cut_is_made_anew_and_what_was_said_meanwhile_is_heard() -> None:
    async with slack_and_app() as app:
        await app.slack.say("C1", "U1", "one")
        await app.heard(1)
        app.slack.fail("apps.connections.open", Fault.broken())
        await app.slack.socket.drop()
        await app.told(ConnectorState.DEGRADED, "lost")
        await app.slack.say("C1", "U1", "two", told=False)
        await app.slack.connected(2)
        await app.heard(2)
        assert app.said("C1") == ["one", "two"]
        await until(lambda: app.context.states[-1][0] is ConnectorState.RUNNING)


async def test_a_wrong_token_is_a_clear_state_and_not_a_loop() -> None:
    async with slack_and_app(start=False) as app:
        app.slack.workspace.bot_tokens = {"xoxb-another"}
        with pytest.raises(AccountRefused, match=r"invalid_auth: check the botToken"):
            await app.connector.run()
        assert app.context.states[-1][0] is ConnectorState.FAILED
        app.slack.workspace.app_token = "xapp-another"
        app.slack.workspace.bot_tokens = {BOT_TOKEN}
        with pytest.raises(AccountRefused, match=r"invalid_auth: check the appToken"):
            await app.connector.run()
        assert len(app.slack.called("auth.test")) == 2
        assert len(app.slack.called("apps.connections.open")) == 1
        assert not [text for _, text in app.context.states if "xoxb" in text or "xapp" in text]


async def test_scopes_that_are_missing_are_told() -> None:
    async with slack_and_app(start=False) as app:
        app.slack.workspace.scopes -= {"files:read", "users:read"}
        await app.start()
        assert await app.told(ConnectorState.RUNNING) == "Socket Mode; the app lacks the scopes files:read, users:read"
        await app.stop()
        app.slack.workspace.scopes -= {"chat:write"}
        with pytest.raises(AccountRefused, match="lacks the scope chat:write"):
            await app.connector.run()


async def test_an_app_that_is_removed_while_it_runs_says_so() -> None:
    async with slack_and_app() as app:
        envelope = await app.slack.socket.send(
            "events_api", {"type": "event_callback", "event": {"type": "tokens_revoked"}}
        )
        await app.slack.acknowledged(envelope)
        assert app.running is not None
        with pytest.raises(AccountRefused, match="removed"):
            await app.running
        app.running = None


@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        ("/stop", "", "/stop"),
        ("/maestro-status", "", "/status"),
        ("/maestro", "new", "/new"),
        ("/pair", "AB 1", "/pair AB 1"),
    ],
)
async def test_a_slash_command_is_a_control_word(command: str, text: str, said: str) -> None:
    async with slack_and_app() as app:
        envelope = await app.slack.command("D1", "U1", command, text)
        await app.slack.acknowledged(envelope)
        assert app.said("D1") == [said]
        assert envelope.answers == [None]


async def test_an_unknown_slash_command_is_answered_at_once() -> None:
    async with slack_and_app() as app:
        envelope = await app.slack.command("D1", "U1", "/maestro", "dance")
        await app.slack.acknowledged(envelope)
        assert envelope.answers == [{"text": "Unknown command; use /stop, /status or /new."}]
        assert app.context.inbox == []


async def test_an_edit_names_the_message_whose_text_it_replaces() -> None:
    async with slack_and_app() as app:
        ts = await app.slack.say("C1", "U1", "helo")
        await app.slack.edit("C1", ts, "hello")
        first, second = await app.heard(2)
        assert (second.content, second.edit_of, second.address) == ("hello", first.id, first.address)
        assert second.id != first.id


async def test_only_channels_that_were_set_are_heard_and_direct_messages() -> None:
    async with slack_and_app(channels=("C1",)) as app:
        for channel in ("C2", "C1", "D9"):
            await app.slack.say(channel, "U1", channel)
        await app.heard(2)
        assert (app.said("C1"), app.said("C2"), app.said("D9")) == (["C1"], [], ["D9"])
