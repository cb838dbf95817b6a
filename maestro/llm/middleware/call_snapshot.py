"""What the store says of one call, read in one view before the call begins; an answer that is held ends it there."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from maestro.domain.chat.message import Unread, listens
from maestro.domain.llm.budgets import DailyBudgets, Limit, Payer, exceeded, limits_of
from maestro.domain.llm.calls import LLMCall
from maestro.domain.llm.prompts import TOOL_CALLS, LLMRequest, LLMResponse
from maestro.llm.accounts import AccountBook, Roster
from maestro.llm.held_answers import HeldAnswers
from maestro.llm.protocols import LLMClient
from maestro.store.store import Store
from maestro.store.transaction import Transaction

UNREAD_POSTS = 50
"""The most unread posts of a snapshot; where there are more, the chat feed reads those that fit its request."""
NOTHING_UNREAD = Unread((), 0)


@dataclass(frozen=True, slots=True)
class PayerBudgets:
    """Whom a call is charged to, the limits that hold for it, and the first of them that is used up.

    ``cheaper_model`` is asked instead when the budget is used up; empty for none.
    """

    payer: Payer
    limits: tuple[Limit, ...] = ()
    used_up: Limit | None = None
    cheaper_model: str = ""


@dataclass(frozen=True, slots=True)
class CallSnapshot:
    """What the middleware decides by: accounts, budgets, and what the agent is told of #maestro.

    It travels with the request and holds for one attempt that neither waits nor follows another one. Middleware that
    waits or asks again hands the request on without it (``without_snapshot``), and what is needed then is read anew.
    """

    roster: Roster
    budgets: PayerBudgets
    reminder_due: bool = False
    unread: Unread = NOTHING_UNREAD


def without_snapshot(request: LLMRequest, **changes: object) -> LLMRequest:
    """Return a request, with these fields changed, for which the store is read again where that matters."""
    return request.model_copy(update={**changes, "snapshot": None})


class CallReader:
    """Reads snapshots; ``budgets`` is asked at each, ``chat`` says whether agents are told what others posted."""

    def __init__(self, store: Store, book: AccountBook, budgets: Callable[[], DailyBudgets], *, chat: bool) -> None:
        self._store = store
        self._book = book
        self._budgets = budgets
        self._chat = chat

    async def snapshot(self, request: LLMRequest) -> CallSnapshot:
        """Return the snapshot that the request carries; one without is given a new one."""
        carried = request.snapshot
        return carried if isinstance(carried, CallSnapshot) else await asyncio.to_thread(self.read, request)

    def read(self, request: LLMRequest) -> CallSnapshot:
        """Read a snapshot."""
        with self._store.view() as tx:
            return self._snapshot(tx, request)

    def read_first(self, tx: Transaction, request: LLMRequest) -> LLMResponse | CallSnapshot:
        """Return the answer to the call that the store holds, and a snapshot where it holds none."""
        call = tx.calls.answered(request.key)
        return _response(call) if call else self._snapshot(tx, request)

    def unread(self, agent: str, limit: int) -> Unread:
        """Return the oldest posts that an agent has not read: there may be more than a process wants in memory."""
        with self._store.view() as tx:
            return tx.chat.unread(agent, limit)

    def _snapshot(self, tx: Transaction, request: LLMRequest) -> CallSnapshot:
        roster = self._book.roster(tx)
        job_id, budgets = request.key.job_id, self._budgets()
        payer = tx.callers.payer(job_id)
        limits = limits_of(payer, budgets)
        used_up = exceeded(limits, tx.callers.levels(job_id))
        spending = PayerBudgets(payer, limits, used_up, budgets.fallback_model)
        if not (self._chat and listens(request)):
            return CallSnapshot(roster, spending)
        unread, due = tx.chat.news(request.agent, job_id, UNREAD_POSTS)
        return CallSnapshot(roster, spending, due, unread)


@dataclass(frozen=True, slots=True)
class CallView:
    """A view in which a request is built and what the store says of its call is read.

    While answers are in spool files that is left to ``ReplayGuard.complete``, which commits them first.
    """

    tx: Transaction
    reader: CallReader
    spooled: bool

    def with_snapshot(self, request: LLMRequest) -> LLMRequest:
        """Return the request with the answer to its call that is held, or with the snapshot."""
        if self.spooled:
            return request
        return request.model_copy(update={"snapshot": self.reader.read_first(self.tx, request)})


class ReplayGuard:
    """Returns the stored answer of a call instead of asking again; the outermost middleware.

    A request that was built in its ``view`` comes with what was read there; for any other the store is read first.

    See docs/invariants.md: no answer bought twice.
    """

    def __init__(self, inner: LLMClient, store: Store, reader: CallReader, answers: HeldAnswers) -> None:
        self._inner = inner
        self._store = store
        self._reader = reader
        self._answers = answers

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer from the store if an earlier attempt got that far; else pass the request on with its snapshot."""
        if request.snapshot is None:
            request = await asyncio.to_thread(self._read, request)
        if isinstance(request.snapshot, LLMResponse):
            return request.snapshot
        return await self._inner.complete(request)

    @contextmanager
    def view(self) -> Iterator[CallView]:
        """Open the view in which a request is built."""
        spooled = self._answers.spooled()  # before the view: what is committed after this look is not in the view
        with self._store.view() as tx:
            yield CallView(tx, self._reader, spooled)

    def _read(self, request: LLMRequest) -> LLMRequest:
        self._answers.recover()
        with self._store.view() as tx:
            return CallView(tx, self._reader, spooled=False).with_snapshot(request)


def _response(call: LLMCall) -> LLMResponse:
    values = call.model_dump(include=set(LLMResponse.model_fields) - {"tool_calls"})
    return LLMResponse(**values, tool_calls=TOOL_CALLS.validate_json(call.tool_calls) if call.tool_calls else ())
