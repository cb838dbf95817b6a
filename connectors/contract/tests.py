"""The contract tests of a connector: subclass them and provide the fixture ``bench``."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from connectors.base import (
    AcknowledgesMessages,
    AmbiguousSend,
    Connector,
    ConnectorState,
    EditsMessages,
    FailureScope,
    Idempotency,
    PermanentSend,
    RetryableSend,
    SendFailure,
    Unsettled,
)
from connectors.contract.context import MemoryContext
from connectors.hub import SendAction, action_in_doubt, attempt, choose_action, hand_over
from connectors.splitting import length
from maestro.domain.errors import MaestroError, StoreBusy
from maestro.domain.messages import Address, OutgoingMessage, Receipt


class Fault(StrEnum):
    """How the next send goes wrong."""

    BUSY = "the platform asks to come back later, and takes nothing"
    BROKEN = "the platform has trouble of its own, and takes nothing"
    CUT = "the platform takes the message, and the connection is cut before it says so"
    NO_CHANNEL = "the bot may not write to this channel, or it is gone"
    BAD_TOKEN = "the token is not valid any more"  # noqa: S105 - no token
    BAD_MESSAGE = "the platform does not take this message, and never will"


class Bench(Protocol):
    """A connector that runs, and the platform it is connected to.

    ``place`` is a channel for messages in both directions; ``token`` is a secret of the account, empty
    where there is none. ``faults`` are those that the platform knows.
    """

    context: MemoryContext
    place: Address
    token: str
    faults: frozenset[Fault]

    @property
    def connector(self) -> Connector:
        """The connector that runs now."""
        ...

    async def say(self, text: str) -> str:
        """Let a person write to ``place``; return the id that the message has in the inbox."""
        ...

    async def repeat(self, message_id: str) -> None:
        """Let the platform deliver a message again that it delivered before."""
        ...

    async def come_back(self) -> None:
        """End the connector and connect another one with the same context.

        Messages that were not acknowledged come again, by themselves or because the connector asks for them.
        """
        ...

    def arm(self, fault: Fault) -> None:
        """Let the next send go wrong."""
        ...

    async def posts(self) -> Sequence[str]:
        """Return the account's messages in ``place``, oldest first, as the platform has them."""
        ...


PATIENCE = 20.0
"""Seconds a test waits for what must happen."""
PAUSE = 0.05
"""Seconds before a connector that did not dispatch a message is asked again."""
SCOPES = {
    Fault.NO_CHANNEL: FailureScope.CHANNEL,
    Fault.BAD_TOKEN: FailureScope.ACCOUNT,
    Fault.BAD_MESSAGE: FailureScope.MESSAGE,
}


class ConnectorContract:
    """The promises. A test passes at once where the platform cannot do what it is about."""

    # ---- receiving ----

    async def test_a_message_comes_in_as_it_was_written(self, bench: Bench) -> None:
        """Text, place and id arrive; the id is the platform's, so that a repeat is recognised."""
        number = await bench.say("hello there")
        await received(bench, 1)
        [message] = bench.context.inbox
        assert (message.content, message.id, message.address) == ("hello there", number, bench.place)
        assert message.user_id, "who wrote it"
        assert message.sent_at.tzinfo is not None, "a time without a zone could be any"

    async def test_the_same_event_three_times_is_one_message(self, bench: Bench) -> None:
        """A platform that heard nothing delivers again; only the first one counts."""
        number = await bench.say("only once")
        await received(bench, 1)
        for _ in range(2):
            await bench.repeat(number)
        await bench.say("the next one")
        await received(bench, 2)
        assert texts(bench) == ["only once", "the next one"]

    async def test_messages_keep_their_order(self, bench: Bench) -> None:
        """The first may take long to be stored: the others of its channel wait."""
        bench.context.before_accept = asyncio.Event()
        said = [f"number {number}" for number in range(5)]
        speaking = asyncio.create_task(_say_all(bench, said))
        await asyncio.sleep(0.05)  # time in which the second message could overtake the first
        bench.context.before_accept.set()
        await received(bench, len(said))
        await speaking
        assert texts(bench) == said

    async def test_what_the_store_refused_comes_again(self, bench: Bench) -> None:
        """Nothing is acknowledged that is not stored: a message is there in the end, once."""
        bench.context.failure = StoreBusy("the database is locked")
        speaking = asyncio.create_task(_say_all(bench, ["not lost"]))
        await until(lambda: bench.context.refused > 0, "the store was never asked")
        bench.context.failure = None
        await bench.come_back()
        await received(bench, 1)
        await speaking
        await bench.say("and on")
        await received(bench, 2)
        assert texts(bench) == ["not lost", "and on"]

    async def test_a_crash_between_store_and_acknowledgement_doubles_nothing(self, bench: Bench) -> None:
        """The platform was not told and delivers again; the store has it already."""
        bench.context.crash = StoreBusy("the process died here")
        speaking = asyncio.create_task(_say_all(bench, ["stored"]))
        await received(bench, 1)
        await bench.come_back()
        await speaking
        await bench.say("and on")
        await received(bench, 2)
        assert texts(bench) == ["stored", "and on"]

    # ---- sending ----

    async def test_a_chunk_arrives_with_a_receipt(self, bench: Bench) -> None:
        """The receipt is the platform's own id."""
        receipt = await bench.connector.send(chunk(bench, "an answer"))
        assert receipt.platform_message_id
        assert list(await bench.posts()) == ["an answer"]

    async def test_chunks_arrive_in_the_order_in_which_they_are_sent(self, bench: Bench) -> None:
        """Each is sent when the one before has its receipt."""
        answers = [f"part {number}" for number in range(4)]
        for number, text in enumerate(answers):
            await bench.connector.send(chunk(bench, text, number))
        assert list(await bench.posts()) == answers

    async def test_the_longest_chunk_is_taken_whole(self, bench: Bench) -> None:
        """The limit that the connector names is one that the platform keeps."""
        able = bench.connector.capabilities
        text = "x" * able.max_length
        assert length(text, able.unit) == able.max_length
        await bench.connector.send(chunk(bench, text))
        assert list(await bench.posts()) == [text]

    async def test_each_failure_has_its_class(self, bench: Bench) -> None:
        """What may be tried again is told from what may not, and a permanent failure says what it is about."""
        for number, (fault, scope) in enumerate(SCOPES.items()):
            if fault not in bench.faults:
                continue
            bench.arm(fault)
            outcome = await attempt(bench.connector, chunk(bench, "refused", number))
            assert isinstance(outcome, PermanentSend), f"{fault}: {outcome!r}"
            assert outcome.scope is scope, fault
        assert list(await bench.posts()) == []

    async def test_what_the_platform_did_not_take_may_be_sent_again(self, bench: Bench) -> None:
        """A failure that may be repeated is repeated by Maestro alone, and the message is there once."""
        for number, fault in enumerate((Fault.BUSY, Fault.BROKEN)):
            if fault not in bench.faults:
                continue
            bench.arm(fault)
            before, message = len(await bench.posts()), chunk(bench, f"after {fault.name}", number)
            outcome = await attempt(bench.connector, message)
            if isinstance(outcome, SendFailure):
                assert outcome.retryable, f"{fault}: {outcome!r}"
                assert not isinstance(outcome, RetryableSend) or outcome.retry_after is not None
                await _again(bench, message)
            assert len(await bench.posts()) == before + 1, fault

    async def test_what_was_taken_without_a_word_is_there_once(self, bench: Bench) -> None:
        """The connection is cut after the platform took it; by key or by a look, no second one appears.

        Where a platform has neither, the account's rule may have it sent again: then it is there twice, and no more.
        """
        if Fault.CUT not in bench.faults:
            return
        bench.arm(Fault.CUT)
        message, repeated = chunk(bench, "taken in silence"), False
        outcome = await attempt(bench.connector, message)
        if isinstance(outcome, SendFailure):
            assert isinstance(outcome, AmbiguousSend), "it is unknown whether it arrived"
            repeated = await _again(bench, message) is SendAction.RESEND
        assert not repeated or bench.connector.capabilities.idempotency is not Idempotency.NATIVE
        assert list(await bench.posts()) == ["taken in silence"] * (1 + repeated)

    async def test_a_key_that_the_platform_knows_is_no_second_message(self, bench: Bench) -> None:
        """Only where the capabilities promise it."""
        if bench.connector.capabilities.idempotency is not Idempotency.NATIVE:
            return
        for _ in range(2):
            await bench.connector.send(chunk(bench, "the same"))
        assert list(await bench.posts()) == ["the same"]

    async def test_a_message_can_be_written_anew(self, bench: Bench) -> None:
        """Only of a connector that says that it can; that the message says so already is no failure."""
        if not isinstance(bench.connector, EditsMessages):
            return
        receipt = await bench.connector.send(chunk(bench, "an ans"))
        for _ in range(2):
            whole = chunk(bench, "an answer").model_copy(update={"edits": receipt.platform_message_id})
            await bench.connector.edit(whole)
        assert list(await bench.posts()) == ["an answer"]

    async def test_a_message_that_is_acknowledged_is_not_answered_by_that(self, bench: Bench) -> None:
        """Only of a connector that says that it can; twice is as good as once."""
        if not isinstance(bench.connector, AcknowledgesMessages):
            return
        number = await bench.say("seen?")
        await received(bench, 1)
        for _ in range(2):
            await bench.connector.acknowledge(bench.place, number)
        assert list(await bench.posts()) == []

    async def test_typing_stops_no_answer(self, bench: Bench) -> None:
        """An indicator is a courtesy: it may fail with a ``MaestroError``, and the answer goes out all the same."""
        with contextlib.suppress(MaestroError):
            await bench.connector.typing(bench.place)
        await bench.connector.send(chunk(bench, "an answer"))
        assert list(await bench.posts()) == ["an answer"]

    async def test_no_report_holds_the_token(self, bench: Bench) -> None:
        """No state or error contains the token, because people see them and they are stored."""
        states = bench.context.states
        await until(lambda: ConnectorState.RUNNING in dict(states), "a state that says that it is connected")
        told = [detail for _, detail in bench.context.states]
        for number, fault in enumerate(sorted(bench.faults)):
            bench.arm(fault)
            outcome = await attempt(bench.connector, chunk(bench, "an answer", number))
            told.append(repr(outcome))
        assert not bench.token or not any(bench.token in text for text in told)


def chunk(bench: Bench, text: str, number: int = 0) -> OutgoingMessage:
    """Return a chunk on its way to the bench's place."""
    return OutgoingMessage(id=number + 1, address=bench.place, content=text, key=f"contract{number:016d}")


def texts(bench: Bench) -> list[str]:
    """Return what is in the inbox, in its order."""
    return [message.content for message in bench.context.inbox]


async def received(bench: Bench, count: int) -> None:
    """Return once so many messages are in the inbox."""
    await until(lambda: len(bench.context.inbox) >= count, f"{count} messages in the inbox, there are {texts(bench)}")


async def until(condition: Callable[[], bool], what: str) -> None:
    """Return once the condition holds; raises ``AssertionError`` saying what did not happen."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - other platforms offer no event to wait for
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE:g} seconds: {what}") from None


async def _say_all(bench: Bench, said: list[str]) -> None:
    for text in said:
        await bench.say(text)


async def _again(bench: Bench, message: OutgoingMessage) -> SendAction:
    """Do what Maestro does with a chunk of which nothing is known, and return what that was.

    A connector that is reconnecting says that it did not dispatch the message; it is asked again, as Maestro does.
    """
    doubtful = message.model_copy(update={"tried_at": datetime.now(UTC)})
    async with asyncio.timeout(PATIENCE):
        while True:
            move, outcome = await _one_more(bench, doubtful)
            if not (isinstance(outcome, SendFailure) and outcome.retryable and outcome.surely_unsent):
                break
            await asyncio.sleep(outcome.retry_after.total_seconds() if outcome.retry_after else PAUSE)
    assert not isinstance(outcome, SendFailure), f"{outcome!r}"
    return move


async def _one_more(bench: Bench, doubtful: OutgoingMessage) -> tuple[SendAction, Receipt | SendFailure | None]:
    """Make one attempt; there is no outcome where the rules leave the chunk alone."""
    move = choose_action(doubtful, bench.connector, datetime.now(UTC))
    if move is SendAction.LEAVE:
        return move, None
    outcome: Receipt | SendFailure = await hand_over(bench.connector, doubtful, move)
    if not isinstance(outcome, Unsettled):
        return move, outcome
    move = action_in_doubt(doubtful, bench.connector)
    return move, await attempt(bench.connector, doubtful) if move is SendAction.RESEND else None
