"""Sending with the real slack-sdk: once, at Slack's pace, with every failure told apart, and found again by its key."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from connectors.base import ConnectorState
from connectors.failures import AccountRefused, AmbiguousSend, FailureScope, NotDispatched, PermanentSend, RetryableSend
from maestro.domain.errors import MaestroError
from tests.support.slack_app import chunk, slack_and_app
from tests.support.slack_server import Fault, SlackServer


async def test_a_message_mentions_nobody_and_previews_nothing() -> None:
    async with slack_and_app(start=False) as app:
        receipt = await app.connector.send(
            chunk("**Hi** <!channel> <@U1> [x](https://x.example/?a=1&b=2)", thread="1.2")
        )
        (posted,) = app.slack.posted("C1")
        assert posted["text"] == "*Hi* &lt;!channel&gt; &lt;@U1&gt; <https://x.example/?a=1&amp;b=2|x>"
        assert (posted["ts"], posted["thread_ts"]) == (receipt.platform_message_id, "1.2")
        assert (posted["unfurl_links"], posted["unfurl_media"]) == (False, False)
        assert posted["metadata"]["event_payload"] == {"key": chunk("").key}


@pytest.mark.parametrize(
    ("fault", "failure", "stored"),
    [
        (Fault.limited(7), RetryableSend, 0),
        (Fault.broken(503), AmbiguousSend, 0),
        (Fault.broken(500, stores=True), AmbiguousSend, 1),
        (Fault.cut_before(), AmbiguousSend, 0),
        (Fault.cut_after(), AmbiguousSend, 1),
        (Fault.refused("internal_error"), AmbiguousSend, 0),
        (Fault.refused("is_archived"), PermanentSend, 0),
        (Fault.refused("msg_too_long"), PermanentSend, 0),
        (Fault.refused("token_revoked"), PermanentSend, 0),
    ],
)
async def test_a_send_is_made_once_and_says_how_it_ended(
    fault: Fault, failure: type[MaestroError], stored: int
) -> None:
    async with slack_and_app(start=False) as app:
        app.slack.fail("chat.postMessage", fault)
        with pytest.raises(failure):
            await app.connector.send(chunk("hello"))
        assert len(app.slack.called("chat.postMessage")) == 1
        assert len(app.slack.posted("C1")) == stored
        found = await app.connector.find(chunk("hello", tried_at=datetime.now(UTC)))
        assert (found is not None) == bool(stored)


async def test_a_rate_limit_says_how_long_to_wait() -> None:
    async with slack_and_app(start=False) as app:
        app.slack.fail("chat.postMessage", Fault.limited(7))
        with pytest.raises(RetryableSend) as limited:
            await app.connector.send(chunk("hello"))
        assert limited.value.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("error", "scope"),
    [
        ("not_in_channel", FailureScope.CHANNEL),
        ("no_permission", FailureScope.CHANNEL),
        ("no_text", FailureScope.MESSAGE),
        ("restricted_action_thread_locked", FailureScope.MESSAGE),
        ("account_inactive", FailureScope.ACCOUNT),
    ],
)
async def test_a_permanent_error_says_what_is_broken(error: str, scope: FailureScope) -> None:
    async with slack_and_app(start=False) as app:
        app.slack.fail("chat.postMessage", Fault.refused(error))
        with pytest.raises(PermanentSend) as refused:
            await app.connector.send(chunk("hello"))
        assert refused.value.scope is scope


async def test_nothing_was_sent_when_nobody_listens() -> None:
    async with SlackServer.running() as gone:
        url = gone.api_url
    async with slack_and_app(start=False, base_url=url) as app:
        with pytest.raises(NotDispatched):
            await app.connector.send(chunk("hello"))


async def test_a_token_that_is_refused_while_sending_stops_the_connector() -> None:
    async with slack_and_app() as app:
        await app.told(ConnectorState.RUNNING)
        app.slack.fail("chat.postMessage", Fault.refused("token_revoked"))
        with pytest.raises(PermanentSend):
            await app.connector.send(chunk("hello"))
        assert app.running is not None
        with pytest.raises(AccountRefused, match="install the app again"):
            await app.running
        app.running = None


async def test_a_message_is_found_among_many_in_a_thread_and_in_a_channel() -> None:
    async with slack_and_app(start=False) as app:
        tried = datetime.now(UTC)
        parent = app.slack.write("C1", "U1", "question")["ts"]
        for thread in ("", parent):
            receipt = await app.connector.send(chunk("mine", thread=thread))
            for n in range(210):
                app.slack.write("C1", "U1", str(n), thread=thread)
            assert await app.connector.find(chunk("mine", thread=thread, tried_at=tried)) == receipt
            assert await app.connector.find(chunk("mine", thread=thread, number=2, tried_at=tried)) is None
        later = chunk("mine", tried_at=tried + timedelta(hours=1))
        assert await app.connector.find(later) is None


async def test_a_message_whose_metadata_is_gone_is_found_by_content_and_time() -> None:
    async with slack_and_app(start=False) as app:
        tried = datetime.now(UTC)
        text = "See https://x.example/?a=1&b=2 \U0001f44d"
        app.slack.write("C1", "U1", text)
        receipt = await app.connector.send(chunk(text))
        (posted,) = app.slack.posted("C1")
        del posted["metadata"]
        posted["text"] = "See <https://x.example/?a=1&amp;b=2> :+1:"
        assert await app.connector.find(chunk(text, tried_at=tried)) == receipt
        assert await app.connector.find(chunk("other", tried_at=tried)) is None
        assert await app.connector.find(chunk(text, tried_at=tried + timedelta(minutes=1))) is None
        posted["bot_id"] = "B-of-another-app"
        assert await app.connector.find(chunk(text, tried_at=tried)) is None


@pytest.mark.parametrize("fault", [Fault.broken(), Fault.limited(1)])
async def test_a_search_without_an_answer_is_no_no(fault: Fault) -> None:
    async with slack_and_app(start=False) as app:
        app.slack.fail("conversations.history", fault)
        with pytest.raises(AmbiguousSend):
            await app.connector.find(chunk("hello", tried_at=datetime.now(UTC)))


@pytest.mark.parametrize(
    ("error", "scope"),
    [
        ("missing_scope", FailureScope.MESSAGE),
        ("not_in_channel", FailureScope.CHANNEL),
        ("token_revoked", FailureScope.ACCOUNT),
    ],
)
async def test_who_may_not_look_never_knows(error: str, scope: FailureScope) -> None:
    async with slack_and_app(start=False) as app:
        app.slack.fail("conversations.history", Fault.refused(error))
        with pytest.raises(PermanentSend) as refused:
            await app.connector.find(chunk("hello", tried_at=datetime.now(UTC)))
        assert refused.value.scope is scope


async def test_a_long_answer_goes_as_a_file_and_is_found_by_its_name() -> None:
    async with slack_and_app(start=False) as app:
        message = chunk("# All of it", thread="5.5", filename="answer.md", tried_at=datetime.now(UTC))
        assert await app.connector.find(message) is None
        receipt = await app.connector.send(message)
        (posted,) = app.slack.posted("C1")
        assert posted["thread_ts"] == "5.5"
        (file,) = app.slack.workspace.files.values()
        assert (file.id, file.content) == (receipt.platform_message_id, b"# All of it")
        assert await app.connector.find(message) == receipt


async def test_a_missing_scope_for_files_does_not_stop_the_connector() -> None:
    async with slack_and_app() as app:
        app.slack.fail("files.getUploadURLExternal", Fault.refused("missing_scope", needed="files:write"))
        with pytest.raises(PermanentSend, match="files:write") as refused:
            await app.connector.send(chunk("long", filename="answer.md"))
        assert refused.value.scope is FailureScope.MESSAGE
        await app.slack.say("C1", "U1", "still there?")
        await app.heard(1)


async def test_messages_to_one_channel_keep_slacks_pace() -> None:
    async with slack_and_app(start=False, pace_seconds=0.2) as app:
        began = time.monotonic()
        for number in (1, 2):
            await app.connector.send(chunk("hello", number=number))
        assert app.slack.called("chat.postMessage")[1].at - began >= 0.2


async def test_typing_shows_in_threads_only_and_its_failure_says_so() -> None:
    async with slack_and_app(start=False) as app:
        await app.connector.typing(chunk("").address)
        await app.connector.typing(chunk("", thread="1.5").address)
        assert [(one["channel_id"], one["thread_ts"]) for one in app.slack.api.statuses] == [("C1", "1.5")]
        app.slack.fail("assistant.threads.setStatus", Fault.refused("missing_scope"))
        with pytest.raises(MaestroError):
            await app.connector.typing(chunk("", thread="1.5").address)
        await app.connector.typing(chunk("", thread="1.5").address)
        assert len(app.slack.called("assistant.threads.setStatus")) == 2
