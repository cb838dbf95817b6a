"""Messages that are written anew, reactions and files of the store, with the real slack-sdk."""

import contextlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from connectors.base import ConnectorState
from connectors.failures import AccountRefused, AmbiguousSend, FailureScope, PermanentSend, RetryableSend
from connectors.slack.platform import SlackOptions
from maestro.domain.errors import MaestroError
from maestro.domain.messages import Address, Button
from tests.support.slack_app import chunk, slack_and_app
from tests.support.slack_server import Fault

PLACE = Address(platform="slack", channel="C1", thread="1.2")


async def test_answers_grow_only_where_it_is_said() -> None:
    async with slack_and_app(start=False) as app:
        assert app.connector.capabilities.edit_interval == 0
    async with slack_and_app(start=False, mode="events", streaming=True, streaming_seconds=2) as app:
        assert app.connector.capabilities.edit_interval == 2


async def test_a_message_of_ours_is_written_anew_as_it_would_be_sent_and_keeps_its_key() -> None:
    async with slack_and_app(start=False) as app:
        begun = datetime.now(UTC)
        receipt = await app.connector.send(chunk("The answ"))
        whole = chunk("**The answer** <!channel>", edits=receipt.platform_message_id, tried_at=begun)
        for _ in range(2):
            await app.connector.edit(whole)
        (post,) = app.slack.posted("C1")
        assert (post["text"], post["blocks"]) == ("*The answer* &lt;!channel&gt;", [])
        assert await app.connector.find(whole) == receipt
        await app.connector.edit(whole.model_copy(update={"buttons": (Button(label="More", value="more"),)}))
        assert [block["type"] for block in app.slack.posted("C1")[0]["blocks"]] == ["section", "actions"]


@pytest.mark.parametrize(
    ("fault", "failure", "scope"),
    [
        (Fault.refused("message_not_found"), PermanentSend, FailureScope.MESSAGE),
        (Fault.refused("cant_update_message"), PermanentSend, FailureScope.MESSAGE),
        (Fault.refused("edit_window_closed"), PermanentSend, FailureScope.MESSAGE),
        (Fault.refused("channel_not_found"), PermanentSend, FailureScope.CHANNEL),
        (Fault.limited(7), RetryableSend, None),
        (Fault.cut_after(), AmbiguousSend, None),
    ],
)
async def test_what_cannot_be_written_anew_is_told(
    fault: Fault, failure: type[MaestroError], scope: FailureScope | None
) -> None:
    async with slack_and_app(start=False) as app:
        receipt = await app.connector.send(chunk("The answ"))
        app.slack.fail("chat.update", fault)
        with pytest.raises(failure) as failed:
            await app.connector.edit(chunk("The answer", edits=receipt.platform_message_id))
        assert getattr(failed.value, "scope", None) is scope
        assert len(app.slack.called("chat.update")) == 1


async def test_a_token_that_was_revoked_ends_the_run_at_an_edit_too() -> None:
    with contextlib.suppress(AccountRefused):
        async with slack_and_app() as app:
            app.slack.fail("chat.update", Fault.refused("token_revoked"))
            with pytest.raises(PermanentSend):
                await app.connector.edit(chunk("The answer", edits="1.2"))
            assert "token_revoked" in await app.told(ConnectorState.FAILED)


@pytest.mark.parametrize("emoji", ["eyes", ":eyes:"])
async def test_a_message_is_acknowledged_at_itself_and_again_without_harm(emoji: str) -> None:
    async with slack_and_app(start=False, ack_reaction=emoji) as app:
        said = app.slack.write("C1", "U1", "hello")
        for _ in range(2):
            await app.connector.acknowledge(PLACE, said["ts"])
        assert said["reactions"] == ["eyes"]
        for known_as in ("command:1.2", f"{said['ts']}:1.3"):
            await app.connector.acknowledge(PLACE, known_as)
        assert len(app.slack.called("reactions.add")) == 2
        with pytest.raises(PermanentSend):
            await app.connector.acknowledge(PLACE, "1.2")


async def test_without_a_reaction_nothing_is_asked() -> None:
    async with slack_and_app(start=False) as app:
        await app.connector.acknowledge(PLACE, "1.2")
        assert app.slack.called("reactions.add") == []


async def test_without_the_scope_slack_is_asked_once_and_operators_are_told() -> None:
    async with slack_and_app(ack_reaction="eyes") as app:
        assert "reactions:write" in await app.told(ConnectorState.RUNNING)
        app.slack.fail("reactions.add", *[Fault.refused("missing_scope", "reactions:write")] * 9)
        said = app.slack.write("C1", "U1", "hello")
        for _ in range(2):
            await app.connector.acknowledge(PLACE, said["ts"])
        assert len(app.slack.called("reactions.add")) == 1


@pytest.mark.parametrize(("name", "right"), [("eyes", True), (":+1::skin-tone-2:", True), ("", True), ("👀", False)])
def test_a_reaction_is_named_as_slack_names_it(name: str, right: bool) -> None:
    if right:
        assert SlackOptions(ack_reaction=name).ack_reaction == name
    else:
        with pytest.raises(ValueError, match="the name of an emoji"):
            SlackOptions(ack_reaction=name)


async def test_a_file_of_the_store_goes_with_its_words_and_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"\x89PNG\xff")
    async with slack_and_app(start=False) as app:
        file = chunk(
            "A **plan** <!here>",
            thread="1.2",
            filename="the plan.png",
            path=path,
            content_type="image/png",
            tried_at=datetime.now(UTC),
        )
        receipt = await app.connector.send(file)
        (post,) = app.slack.posted("C1")
        assert post["text"] == "A *plan* &lt;!here&gt;"
        assert app.slack.workspace.files[receipt.platform_message_id].content == b"\x89PNG\xff"
        assert await app.connector.find(file) == receipt
        bare = chunk("", number=2, filename="bare.png", path=path, tried_at=datetime.now(UTC))
        second = await app.connector.send(bare)
        assert await app.connector.find(bare) == second
        assert app.slack.posted("C1")[-1]["text"] == ""
