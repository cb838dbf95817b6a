"""Models and directories of accounts that do as a test says."""

import asyncio
from collections.abc import Iterable

from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.middleware.request_changes import require_content
from maestro.llm.protocols import Account, LLMClient
from tests.support.llm_requests import response_of

Outcome = LLMResponse | Exception


class Scripted:
    """A client that answers one request after the other as written, and keeps what it was asked."""

    def __init__(self, *outcomes: Outcome) -> None:
        self._outcomes = list(outcomes)
        self.asked: list[LLMRequest] = []

    async def complete(self, request: LLMRequest) -> LLMResponse:
        self.asked.append(request)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class Checked:
    """A client that refuses empty answers, as the recorder does."""

    def __init__(self, inner: LLMClient) -> None:
        self._inner = inner

    async def complete(self, request: LLMRequest) -> LLMResponse:
        return require_content(request, await self._inner.complete(request))


class Held:
    """A client whose calls go on until the test ends them, in the order they came."""

    def __init__(self) -> None:
        self.calls: list[asyncio.Future[LLMResponse]] = []

    @property
    def open(self) -> int:
        """The number of calls under way."""
        return sum(not call.done() for call in self.calls)

    async def complete(self, _: LLMRequest) -> LLMResponse:
        call: asyncio.Future[LLMResponse] = asyncio.get_running_loop().create_future()
        self.calls.append(call)
        return await call

    def end(self, number: int, outcome: Outcome | None = None) -> None:
        """End a call, counted from 0, with an answer or a failure."""
        if isinstance(outcome, Exception):
            self.calls[number].set_exception(outcome)
        else:
            self.calls[number].set_result(outcome or response_of("hello"))


class Accounts:
    """The accounts a process can call."""

    def __init__(self, accounts: Iterable[Account]) -> None:
        self.accounts = {account.name: account for account in accounts}

    def find(self, name: str) -> Account | None:
        return self.accounts.get(name)


async def settled() -> None:
    """Let every task go on until all of them wait for something outside."""
    for _ in range(20):
        await asyncio.sleep(0)
