"""What Maestro talks to in the model: a chat platform and a provider, whose replies the history decides."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from connectors.base import AmbiguousSend, Capabilities, Connector, Idempotency, LengthUnit, NotDispatched, OnAmbiguous
from maestro.domain.llm.calls import ProviderUnavailable
from maestro.domain.llm.prompts import CallKey, LLMRequest, LLMResponse
from maestro.domain.messages import Address, IncomingMessage, OutgoingMessage, Receipt
from tests.promise.process import Process
from tests.support.llm_requests import response_of

CHUNK_LENGTH = 64
LONG, SHORT = "and so on " * 8, "and so on"
"""The text of an answer in two chunks, and of one in a single chunk."""


class Reply(Enum):
    """How a call ends: it is carried out, carried out although the reply gets lost, or refused."""

    ARRIVES = "arrives"
    GETS_LOST = "gets lost"
    IS_REFUSAL = "is a refusal"


@dataclass(eq=False)
class Call:
    """A call of the platform or the provider that is under way.

    ``carry_out`` returns the result; its argument says whether the caller gets it. ``lost`` and ``refused`` are the
    errors that the caller gets otherwise.
    """

    process: Process
    carry_out: Callable[[bool], Any]
    lost: Exception
    refused: Exception
    outcome: asyncio.Future[Any]


class CallsUnderWay:
    """The calls under way, oldest first."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def perform(
        self, process: Process, carry_out: Callable[[bool], Any], lost: Exception, refused: Exception
    ) -> Any:
        """Make a call, and wait until the history ends it."""
        call = Call(process, carry_out, lost, refused, asyncio.get_running_loop().create_future())
        self.calls.append(call)
        return await call.outcome

    def end(self, call: Call, reply: Reply) -> None:
        """End a call; a dead process gets no reply."""
        self.calls.remove(call)
        arrives = call.process.alive and reply is Reply.ARRIVES
        result = call.carry_out(arrives) if reply is not Reply.IS_REFUSAL else None
        if arrives:
            call.outcome.set_result(result)
        elif call.process.alive:
            call.outcome.set_exception(call.lost if reply is Reply.GETS_LOST else call.refused)

    def end_all_of(self, process: Process, reply: Reply) -> None:
        """End the calls of a process that has just died."""
        for call in [call for call in self.calls if call.process is process]:
            self.end(call, reply)


@dataclass(eq=False)
class UserMessage:
    """A message of a user, which the platform delivers until it is acknowledged."""

    message: IncomingMessage
    acknowledged: bool = False
    receiver: Process | None = None
    """The process to which the platform delivered it last."""
    arrival: int = 0
    """The number of the delivery that made it durable, or of the last one so far."""


@dataclass
class Platform:
    """A chat platform: the messages of users, the posts of Maestro, and how it treats repeated sends."""

    idempotency: Idempotency
    on_ambiguous: OnAmbiguous
    messages: list[UserMessage] = field(default_factory=list)
    posts: list[OutgoingMessage] = field(default_factory=list)
    """Everything that users see, in order."""
    unreported: list[OutgoingMessage] = field(default_factory=list)
    """The posts without a receipt, which the platform may report later."""
    in_doubt: Counter[str] = field(default_factory=Counter)
    """How many sends of a chunk ended without an outcome that its sender could record, by idempotency key."""
    deliveries: int = 0
    """How often a message was delivered to a process, repeats included."""

    def add_message(self, channel: str, now: datetime) -> UserMessage:
        """Let a user write in a channel."""
        number = len(self.messages) + 1
        message = IncomingMessage(
            id=f"in-{number}",
            address=Address(platform="web", channel=channel),
            user_id="u-1",
            content=f"question {number}",
            sent_at=now.astimezone(UTC),
            is_direct=True,
        )
        self.messages.append(UserMessage(message))
        return self.messages[-1]

    def deliver(self, message: UserMessage, receiver: Process, *, durable: bool) -> None:
        """Deliver a message to a process; one that died before its commit leaves the arrival to the next delivery."""
        self.deliveries += 1
        message.receiver = receiver
        if not durable:
            message.arrival = self.deliveries

    def post(self, message: OutgoingMessage, *, reported: bool) -> Receipt:
        """Show a message, unless its idempotency key says that it is there already."""
        if not reported:
            self.unreported.append(message)
        known = self.find(message) if self.idempotency is Idempotency.NATIVE else None
        if known is None:
            self.posts.append(message)
        return known or Receipt(platform_message_id=f"p-{len(self.posts)}")

    def find(self, message: OutgoingMessage) -> Receipt | None:
        """Return the receipt of a message that is there."""
        numbers = (number for number, post in enumerate(self.posts, 1) if post.key == message.key)
        return next((Receipt(platform_message_id=f"p-{number}") for number in numbers), None)


class PlatformConnector:
    """The connector of one process; it streams no answers."""

    platform, account, token_digest = "web", "default", ""

    def __init__(self, calls: CallsUnderWay, platform: Platform, process: Process) -> None:
        self.capabilities = Capabilities(
            CHUNK_LENGTH, LengthUnit.CODE_POINTS, 8, platform.idempotency, on_ambiguous=platform.on_ambiguous
        )
        self._calls = calls
        self._platform = platform
        self._process = process

    async def run(self) -> None:
        """The history delivers the messages."""

    async def typing(self, address: Address) -> None:
        """Show nothing."""

    async def send(self, message: OutgoingMessage) -> Receipt:
        try:
            receipt: Receipt = await self._calls.perform(
                self._process,
                lambda arrives: self._platform.post(message, reported=arrives),
                AmbiguousSend("the connection was cut"),
                NotDispatched("the platform is away"),
            )
        except AmbiguousSend:
            self._platform.in_doubt[message.key] += 1
            raise
        return receipt

    async def end_streaming(self, job_id: str) -> None:
        """Show no drafts."""

    async def settle_draft(self, job_id: str, connector: Connector) -> None:
        """Show no drafts."""


class SearchingConnector(PlatformConnector):
    """The connector of a platform whose messages can be searched."""

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        away = AmbiguousSend("the platform is away")
        found: Receipt | None = await self._calls.perform(
            self._process, lambda _: self._platform.find(message), away, away
        )
        return found


@dataclass
class Provider:
    """A provider that writes another text each time it is asked."""

    calls: CallsUnderWay
    answers: int = 0
    requests: Counter[CallKey] = field(default_factory=Counter)
    """How many requests were sent for a model call, whatever became of them."""
    failures: Counter[str] = field(default_factory=Counter)
    """How many requests of a job failed in a process that lives."""

    async def complete(self, process: Process, key: CallKey) -> LLMResponse:
        """Answer a request of a process for a model call."""
        self.requests[key] += 1
        away = ProviderUnavailable("the provider is away")
        try:
            response: LLMResponse = await self.calls.perform(process, self._write, away, away)
        except ProviderUnavailable:
            self.failures[key.job_id] += 1
            raise
        return response

    def _write(self, _: bool) -> LLMResponse:
        self.answers += 1
        return response_of(f"answer {self.answers} {LONG if self.answers % 2 else SHORT}")


@dataclass(frozen=True)
class ModelClient:
    """The provider, as one process calls it."""

    provider: Provider
    process: Process

    async def complete(self, request: LLMRequest) -> LLMResponse:
        return await self.provider.complete(self.process, request.key)
