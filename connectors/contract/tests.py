"""The contract tests of a connector; to use them, subclass ``ConnectorContract`` and provide the fixture ``bench``."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from connectors.base import AcknowledgesMessages, Connector, ConnectorState, EditsMessages, Idempotency
from connectors.contract.context import MemoryContext
from connectors.failures import AmbiguousSend, FailureScope, PermanentSend, RetryableSend, SendFailure, Unsettled
from connectors.hub import ConnectorHub, SendAction, attempt, choose_action, choose_action_in_doubt
from connectors.markdown import text_length
from maestro.domain.errors import MaestroError, StoreBusy
from maestro.domain.messages import Address, OutgoingMessage, Receipt


class Fault(StrEnum):
    """A fault of the platform that a test triggers at the next send."""

    BUSY = "the platform asks to retry later and does not accept the message"
    BROKEN = "the platform has an internal error and does not accept the message"
    CUT = "the platform accepts the message, and the connection breaks before its answer"
    NO_CHANNEL = "the bot may not write to this channel, or the channel was deleted"
    BAD_TOKEN = "the token is no longer valid"  # noqa: S105 - a description, not a secret
    BAD_MESSAGE = "the platform rejects this message permanently"


class Bench(Protocol):
    """A running connector, and the test server of its platform.

    ``place`` is a channel for messages in both directions; ``token`` is a secret of the account, empty without one.
    ``faults`` are the faults that the test server can simulate.
    """

    context: MemoryContext
    place: Address
    token: str
    faults: frozenset[Fault]

    @property
    def connector(self) -> Connector:
        """The running connector."""
        ...

    async def say(self, text: str) -> str:
        """Send a user's message to ``place``; return the id of the message in the inbox."""
        ...

    async def repeat(self, message_id: str) -> None:
        """Make the platform deliver an earlier message again."""
        ...

    async def come_back(self) -> None:
        """Stop the connector and start another one with the same context.

        Messages without an acknowledgement arrive again: the platform repeats them, or the connector requests them.
        """
        ...

    def arm(self, fault: Fault) -> None:
        """Simulate this fault at the next send."""
        ...

    async def posts(self) -> Sequence[str]:
        """Return the texts of the account's messages in ``place``, oldest first, as stored by the platform."""
        ...


PATIENCE = 20.0
"""Seconds that a test waits for an expected event."""
PAUSE = 0.05
"""Seconds before a message that was not dispatched is sent again."""
SCOPES = {
    Fault.NO_CHANNEL: FailureScope.CHANNEL,
    Fault.BAD_TOKEN: FailureScope.ACCOUNT,
    Fault.BAD_MESSAGE: FailureScope.MESSAGE,
}


class ConnectorContract:
    """The tests of a connector; the test of an ability that the platform lacks passes at once."""

    # ---- receiving ----

    async def test_a_message_arrives_as_it_was_written(self, bench: Bench) -> None:
        """The text, the address and the platform's message id reach the inbox unchanged."""
        number = await bench.say("hello there")
        await wait_for_messages(bench, 1)
        [message] = bench.context.inbox
        assert (message.content, message.id, message.address) == ("hello there", number, bench.place)
        assert message.user_id, "the message has no user id"
        assert message.sent_at.tzinfo is not None, "sent_at has no time zone"

    async def test_the_same_event_three_times_is_one_message(self, bench: Bench) -> None:
        """A platform repeats a message that was not acknowledged; only the first delivery is stored."""
        number = await bench.say("only once")
        await wait_for_messages(bench, 1)
        for _ in range(2):
            await bench.repeat(number)
        await bench.say("the next one")
        await wait_for_messages(bench, 2)
        assert inbox_texts(bench) == ["only once", "the next one"]

    async def test_messages_keep_their_order(self, bench: Bench) -> None:
        """While the first message of a channel is being stored, later messages of the channel wait."""
        bench.context.before_accept = asyncio.Event()
        messages = [f"number {number}" for number in range(5)]
        speaking = asyncio.create_task(_say_all(bench, messages))
        await asyncio.sleep(0.05)  # The second message could overtake the first in this time.
        bench.context.before_accept.set()
        await wait_for_messages(bench, len(messages))
        await speaking
        assert inbox_texts(bench) == messages

    async def test_a_message_that_the_store_refused_arrives_again(self, bench: Bench) -> None:
        """A message that could not be stored is not acknowledged, so the platform repeats it and it is stored once."""
        bench.context.failure = StoreBusy("the database is locked")
        speaking = asyncio.create_task(_say_all(bench, ["not lost"]))
        await wait_until(lambda: bench.context.refused > 0, "no message was refused")
        bench.context.failure = None
        await bench.come_back()
        await wait_for_messages(bench, 1)
        await speaking
        await bench.say("and on")
        await wait_for_messages(bench, 2)
        assert inbox_texts(bench) == ["not lost", "and on"]

    async def test_a_crash_between_store_and_acknowledgement_doubles_nothing(self, bench: Bench) -> None:
        """After a crash before the acknowledgement the platform repeats the message, which is not stored twice."""
        bench.context.crash = StoreBusy("the process died here")
        speaking = asyncio.create_task(_say_all(bench, ["stored"]))
        await wait_for_messages(bench, 1)
        await bench.come_back()
        await speaking
        await bench.say("and on")
        await wait_for_messages(bench, 2)
        assert inbox_texts(bench) == ["stored", "and on"]

    # ---- sending ----

    async def test_a_chunk_arrives_with_a_receipt(self, bench: Bench) -> None:
        """A sent chunk returns the platform's message id as its receipt."""
        receipt = await bench.connector.send(make_chunk(bench, "an answer"))
        assert receipt.platform_message_id
        assert list(await bench.posts()) == ["an answer"]

    async def test_chunks_arrive_in_the_order_in_which_they_are_sent(self, bench: Bench) -> None:
        """Each chunk is sent after the receipt of the previous chunk."""
        answers = [f"part {number}" for number in range(4)]
        for number, text in enumerate(answers):
            await bench.connector.send(make_chunk(bench, text, number))
        assert list(await bench.posts()) == answers

    async def test_the_longest_chunk_is_accepted_whole(self, bench: Bench) -> None:
        """The platform accepts a message of ``Capabilities.max_length`` without cutting it."""
        able = bench.connector.capabilities
        text = "x" * able.max_length
        assert text_length(text, able.unit) == able.max_length
        await bench.connector.send(make_chunk(bench, text))
        assert list(await bench.posts()) == [text]

    async def test_each_failure_has_its_class(self, bench: Bench) -> None:
        """A permanent failure is a ``PermanentSend`` with the scope of the affected object."""
        for number, (fault, scope) in enumerate(SCOPES.items()):
            if fault not in bench.faults:
                continue
            bench.arm(fault)
            outcome = await attempt(bench.connector, make_chunk(bench, "refused", number))
            assert isinstance(outcome, PermanentSend), f"{fault}: {outcome!r}"
            assert outcome.scope is scope, fault
        assert list(await bench.posts()) == []

    async def test_a_message_that_was_not_accepted_is_sent_again(self, bench: Bench) -> None:
        """After a retryable failure Maestro sends the message again, and the platform has it once."""
        for number, fault in enumerate((Fault.BUSY, Fault.BROKEN)):
            if fault not in bench.faults:
                continue
            bench.arm(fault)
            before, message = len(await bench.posts()), make_chunk(bench, f"after {fault.name}", number)
            outcome = await attempt(bench.connector, message)
            if isinstance(outcome, SendFailure):
                assert outcome.retryable, f"{fault}: {outcome!r}"
                assert not isinstance(outcome, RetryableSend) or outcome.retry_after is not None
                await _retry(bench, message)
            assert len(await bench.posts()) == before + 1, fault

    async def test_a_send_without_an_answer_appears_once(self, bench: Bench) -> None:
        """After a send without an answer, the idempotency key or a search prevents a second message.

        On a platform with neither, the account's rule may resend the message; then it appears twice at most.
        """
        if Fault.CUT not in bench.faults:
            return
        bench.arm(Fault.CUT)
        message, repeated = make_chunk(bench, "taken in silence"), False
        outcome = await attempt(bench.connector, message)
        if isinstance(outcome, SendFailure):
            assert isinstance(outcome, AmbiguousSend), "after a broken connection the send must count as ambiguous"
            repeated = await _retry(bench, message) is SendAction.RESEND
        assert not repeated or bench.connector.capabilities.idempotency is not Idempotency.NATIVE
        assert list(await bench.posts()) == ["taken in silence"] * (1 + repeated)

    async def test_a_repeated_key_sends_no_second_message(self, bench: Bench) -> None:
        """A connector with native idempotency sends a repeated key once."""
        if bench.connector.capabilities.idempotency is not Idempotency.NATIVE:
            return
        for _ in range(2):
            await bench.connector.send(make_chunk(bench, "the same"))
        assert list(await bench.posts()) == ["the same"]

    async def test_a_sent_message_can_be_edited(self, bench: Bench) -> None:
        """An edit replaces the text of a sent message; an edit without a change succeeds."""
        if not isinstance(bench.connector, EditsMessages):
            return
        receipt = await bench.connector.send(make_chunk(bench, "an ans"))
        for _ in range(2):
            whole = make_chunk(bench, "an answer").model_copy(update={"edits": receipt.platform_message_id})
            await bench.connector.edit(whole)
        assert list(await bench.posts()) == ["an answer"]

    async def test_an_acknowledgement_posts_no_message(self, bench: Bench) -> None:
        """An acknowledgement of a user's message posts no message; a repeated acknowledgement is harmless."""
        if not isinstance(bench.connector, AcknowledgesMessages):
            return
        number = await bench.say("seen?")
        await wait_for_messages(bench, 1)
        for _ in range(2):
            await bench.connector.acknowledge(bench.place, number)
        assert list(await bench.posts()) == []

    async def test_a_failed_typing_indicator_stops_no_answer(self, bench: Bench) -> None:
        """A typing indicator that fails with a ``MaestroError`` does not stop the answer."""
        with contextlib.suppress(MaestroError):
            await bench.connector.typing(bench.place)
        await bench.connector.send(make_chunk(bench, "an answer"))
        assert list(await bench.posts()) == ["an answer"]

    async def test_no_report_contains_the_token(self, bench: Bench) -> None:
        """No state or error contains the token, because both are stored and shown to operators."""
        states = bench.context.states
        await wait_until(lambda: ConnectorState.RUNNING in dict(states), "the state RUNNING")
        reports = [detail for _, detail in bench.context.states]
        for number, fault in enumerate(sorted(bench.faults)):
            bench.arm(fault)
            outcome = await attempt(bench.connector, make_chunk(bench, "an answer", number))
            reports.append(repr(outcome))
        assert not bench.token or not any(bench.token in text for text in reports)


def make_chunk(bench: Bench, text: str, number: int = 0) -> OutgoingMessage:
    """Return a chunk addressed to the bench's channel."""
    return OutgoingMessage(id=number + 1, address=bench.place, content=text, key=f"contract{number:016d}")


def inbox_texts(bench: Bench) -> list[str]:
    """Return the texts of the inbox in its order."""
    return [message.content for message in bench.context.inbox]


async def wait_for_messages(bench: Bench, count: int) -> None:
    """Wait until the inbox has ``count`` messages."""
    await wait_until(lambda: len(bench.context.inbox) >= count, f"{count} messages, there are {inbox_texts(bench)}")


async def wait_until(condition: Callable[[], bool], description: str) -> None:
    """Wait until the condition holds; raises ``AssertionError`` with ``description`` after ``PATIENCE`` seconds."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - a platform's test server offers no event to wait for
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE:g} seconds: {description}") from None


async def _say_all(bench: Bench, messages: list[str]) -> None:
    for text in messages:
        await bench.say(text)


async def _retry(bench: Bench, message: OutgoingMessage) -> SendAction:
    """Retry an unconfirmed chunk as Maestro does, and return the last action."""
    unconfirmed = message.model_copy(update={"tried_at": datetime.now(UTC)})
    async with asyncio.timeout(PATIENCE):
        while True:
            action, outcome = await _retry_once(bench, unconfirmed)
            if not (isinstance(outcome, SendFailure) and outcome.retryable and outcome.surely_unsent):
                break
            await asyncio.sleep(outcome.retry_after.total_seconds() if outcome.retry_after else PAUSE)
    assert not isinstance(outcome, SendFailure), f"{outcome!r}"
    return action


async def _retry_once(bench: Bench, unconfirmed: OutgoingMessage) -> tuple[SendAction, Receipt | SendFailure | None]:
    """Retry a chunk once; the outcome is None if the account's rule leaves the chunk unconfirmed."""
    action = choose_action(unconfirmed, bench.connector, datetime.now(UTC))
    if action is SendAction.LEAVE:
        return action, None
    hub = ConnectorHub()
    with hub.register_while_running(bench.connector):
        outcome: Receipt | SendFailure = await hub.perform_send_action(bench.connector, unconfirmed, action)
    if not isinstance(outcome, Unsettled):
        return action, outcome
    action = choose_action_in_doubt(unconfirmed, bench.connector)
    return action, await attempt(bench.connector, unconfirmed) if action is SendAction.RESEND else None
