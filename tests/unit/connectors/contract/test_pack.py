"""The contract's tests find what is wrong with a connector: each flaw, put there on purpose, fails one of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum, auto

import pytest

from connectors.base import (
    AmbiguousSend,
    Capabilities,
    ConnectorState,
    FailureScope,
    Idempotency,
    LengthUnit,
    NotDispatched,
    PermanentSend,
    RetryableSend,
)
from connectors.contract import Bench, ConnectorContract, Fault, MemoryContext
from connectors.contract import tests as contract
from maestro.domain.errors import MaestroError
from maestro.domain.messages import Address, IncomingMessage, OutgoingMessage, Receipt

PLACE = Address(platform="paper", channel="d-1")
TOKEN = "paper-token"
LIMIT = 100


class Flaw(StrEnum):
    """What may be wrong with a connector."""

    ACKNOWLEDGES_FIRST = auto()
    MAKES_IDS = auto()
    OVERTAKES = auto()
    ACCEPTS_TWICE = auto()
    TRIES_AGAIN = auto()
    CALLS_A_CUT_UNSENT = auto()
    FINDS_NOTHING = auto()
    EXAGGERATES = auto()
    MISTAKES_SCOPES = auto()
    GIVES_UP = auto()
    TELLS_THE_TOKEN = auto()
    HAS_NO_RECEIPT = auto()


class Paper:
    """A platform in memory: what people said, what it has of us, and what goes wrong next."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.acknowledged: set[int] = set()
        self.posts: list[OutgoingMessage] = []
        self.fault: Fault | None = None
        self.away = 0
        """How many more calls find nobody, because the connection is being built anew."""
        self.events: asyncio.Queue[int] = asyncio.Queue()


class PaperConnector:
    """A connector to it, with a flaw or none."""

    platform, account, token_digest = "paper", "default", ""

    def __init__(self, paper: Paper, context: MemoryContext, flaw: Flaw | None) -> None:
        longest = LIMIT * 2 if flaw is Flaw.EXAGGERATES else LIMIT
        self.capabilities = Capabilities(longest, LengthUnit.CODE_POINTS, 5, Idempotency.RECONCILE)
        self._paper, self._context, self._flaw = paper, context, flaw

    async def run(self) -> None:
        """Take events one by one."""
        await self._context.report(ConnectorState.RUNNING, TOKEN if self._flaw is Flaw.TELLS_THE_TOKEN else "")
        async with asyncio.TaskGroup() as taking:
            while True:
                number = await self._paper.events.get()
                if self._flaw is Flaw.OVERTAKES:
                    taking.create_task(self._late(number))
                else:
                    await self._take(number)

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Hand it over, or fail as the platform wants."""
        self._reach()
        fault, self._paper.fault = self._paper.fault, None
        if fault is not None:
            await self._fail(fault, message)
        elif len(message.content) > LIMIT:
            raise PermanentSend("too long", FailureScope.MESSAGE)
        self._paper.posts.append(message)
        return Receipt(platform_message_id="" if self._flaw is Flaw.HAS_NO_RECEIPT else str(len(self._paper.posts)))

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Look for the key."""
        self._reach()
        known = any(post.key == message.key for post in self._paper.posts)
        return Receipt(platform_message_id="found") if known and self._flaw is not Flaw.FINDS_NOTHING else None

    async def typing(self, address: Address) -> None:
        """Show nothing."""

    def _reach(self) -> None:
        if self._paper.away:
            self._paper.away -= 1
            raise NotDispatched("reconnecting")

    async def _late(self, number: int) -> None:
        await asyncio.sleep(0.02 * (len(self._paper.said) - number))
        await self._take(number)

    async def _take(self, number: int) -> None:
        if self._flaw is Flaw.ACKNOWLEDGES_FIRST:
            self._paper.acknowledged.add(number)
        with contextlib.suppress(MaestroError):
            name = f"m-{number}" if self._flaw is not Flaw.MAKES_IDS else f"m-{len(self._context.inbox)}"
            await self._context.accept(_message(name, self._paper.said[number]))
            if self._flaw is Flaw.ACCEPTS_TWICE:
                await self._context.accept(_message(f"{name}-again", self._paper.said[number]))
            self._paper.acknowledged.add(number)

    async def _fail(self, fault: Fault, message: OutgoingMessage) -> None:
        if fault is Fault.BUSY or fault is Fault.BROKEN:
            if self._flaw is Flaw.GIVES_UP:
                raise PermanentSend("it failed", FailureScope.MESSAGE)
            raise RetryableSend("come back", timedelta(seconds=1))
        if fault is Fault.CUT:
            self._paper.posts.append(message)
            self._paper.away = 2
            if self._flaw is Flaw.TRIES_AGAIN:
                return  # and so it is handed over once more
            raise NotDispatched("cut") if self._flaw is Flaw.CALLS_A_CUT_UNSENT else AmbiguousSend("cut")
        scope = contract.SCOPES[fault] if self._flaw is not Flaw.MISTAKES_SCOPES else FailureScope.MESSAGE
        raise PermanentSend(str(fault), scope)


class PaperBench:
    """The connector, and a person."""

    faults = frozenset(Fault)
    place, token = PLACE, TOKEN

    def __init__(self, flaw: Flaw | None) -> None:
        self.context = MemoryContext()
        self._paper, self._flaw = Paper(), flaw
        self.connect()

    def connect(self) -> None:
        """Run a connector."""
        self.connector = PaperConnector(self._paper, self.context, self._flaw)
        self._running = asyncio.create_task(self.connector.run())

    async def say(self, text: str) -> str:
        """Write."""
        self._paper.said.append(text)
        number = len(self._paper.said) - 1
        self._paper.events.put_nowait(number)
        return f"m-{number}"

    async def repeat(self, message_id: str) -> None:
        """Tell again."""
        self._paper.events.put_nowait(int(message_id.removeprefix("m-")))

    async def come_back(self) -> None:
        """Connect another one, and tell it what was not acknowledged."""
        await self.stop()
        self.connect()
        for number in range(len(self._paper.said)):
            if number not in self._paper.acknowledged:
                self._paper.events.put_nowait(number)

    def arm(self, fault: Fault) -> None:
        """Let the next send fail."""
        self._paper.fault = fault

    async def posts(self) -> Sequence[str]:
        """Return what arrived."""
        return [post.content for post in self._paper.posts]

    async def stop(self) -> None:
        """End the connector."""
        self._running.cancel()
        await asyncio.wait([self._running])


@asynccontextmanager
async def paper(flaw: Flaw | None) -> AsyncIterator[Bench]:
    """Connect one for the length of a block."""
    made = PaperBench(flaw)
    try:
        yield made
    finally:
        await made.stop()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Connect one without a flaw."""
    async with paper(None) as made:
        yield made


class TestPaper(ConnectorContract):
    """A connector without a flaw passes."""


CONTRACT = ConnectorContract()
FINDS: dict[Flaw, Callable[[Bench], Awaitable[None]]] = {
    Flaw.ACKNOWLEDGES_FIRST: CONTRACT.test_a_message_that_the_store_refused_arrives_again,
    Flaw.MAKES_IDS: CONTRACT.test_the_same_event_three_times_is_one_message,
    Flaw.OVERTAKES: CONTRACT.test_messages_keep_their_order,
    Flaw.ACCEPTS_TWICE: CONTRACT.test_a_crash_between_store_and_acknowledgement_doubles_nothing,
    Flaw.TRIES_AGAIN: CONTRACT.test_a_send_without_an_answer_appears_once,
    Flaw.CALLS_A_CUT_UNSENT: CONTRACT.test_a_send_without_an_answer_appears_once,
    Flaw.FINDS_NOTHING: CONTRACT.test_a_send_without_an_answer_appears_once,
    Flaw.EXAGGERATES: CONTRACT.test_the_longest_chunk_is_accepted_whole,
    Flaw.MISTAKES_SCOPES: CONTRACT.test_each_failure_has_its_class,
    Flaw.GIVES_UP: CONTRACT.test_a_message_that_was_not_accepted_is_sent_again,
    Flaw.TELLS_THE_TOKEN: CONTRACT.test_no_report_contains_the_token,
    Flaw.HAS_NO_RECEIPT: CONTRACT.test_a_chunk_arrives_with_a_receipt,
}


@pytest.mark.parametrize("flaw", Flaw)
async def test_each_flaw_fails_the_test_that_is_about_it(flaw: Flaw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "PATIENCE", 0.5)
    async with paper(flaw) as broken:
        with pytest.raises((AssertionError, PermanentSend)):
            await FINDS[flaw](broken)


def _message(name: str, text: str) -> IncomingMessage:
    return IncomingMessage(id=name, address=PLACE, user_id="ada", content=text, sent_at=datetime.now(UTC))
