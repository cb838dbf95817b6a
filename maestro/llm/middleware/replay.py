"""Middleware that returns stored answers, the spool (files for answers not yet committed), and snapshots for a call.

See docs/decisions.md: questions.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import structlog
from pydantic import ValidationError

from maestro.domain.agent_chat import UnreadPosts, receives_feed
from maestro.domain.errors import ScopeTooNarrow, StepTaken, StoreBusy
from maestro.domain.llm.budgets import BudgetLimit, Payer, applicable_limits, exceeded_limit
from maestro.domain.llm.prompts import TOOL_CALLS, CallKey, LLMRequest, LLMResponse, OnAnswer
from maestro.domain.settings.llm import BudgetSettings
from maestro.domain.values import Value
from maestro.llm.accounts import AccountBook, Roster
from maestro.llm.protocols import AttemptNotes, LLMClient
from maestro.store.store import Store, commit_persistently
from maestro.store.transaction import Transaction

FOLDER = "answers"
"""The folder of spool files, which has files only while the database cannot be written."""

HOLDER_SECONDS = 60.0
"""How long an attempt waits for the host that has the answer on its disk, before it makes the call again.

In this time a host restarts. A host whose disk is lost never comes back.
"""
LOOK_SECONDS = 1.0

Keep = Callable[[Transaction, LLMRequest, LLMResponse], None]
"""A function that writes further rows in the transaction that commits an answer."""

log = structlog.get_logger(__name__)

UNREAD_POSTS = 50
"""The most unread posts in a snapshot; if there are more, the chat feed reads those that fit its request."""
NOTHING_UNREAD = UnreadPosts((), 0)

Result = TypeVar("Result")


def keep_no_rows(_: Transaction, __: LLMRequest, ___: LLMResponse) -> None:
    """Write no further rows with an answer."""


class SpooledAnswer(Value):
    """The answer to one attempt at a call, with those fields of its request that its commit needs."""

    attempt: int
    request: LLMRequest
    response: LLMResponse
    payer: Payer | None = None


class AnswerSpool:
    """Commits each answer exactly once, even if several processes try repeatedly.

    While the store cannot be written, answers are in spool files, named after the attempt at the call. If a process
    died between the commit of an answer and the removal of its file, the next process finds the answer committed. A
    note tells an attempt on another host where the file is (docs/adr/0052-an-answer-on-the-disk-of-another-host.md).
    """

    def __init__(self, store: Store, folder: Path, keep: Keep, notes: AttemptNotes) -> None:
        """``keep`` is called for each answer, in the transaction that commits the answer."""
        self._store = store
        self._keep = keep
        self._folder = folder
        self._notes = notes
        self._here = f"{socket.gethostname()}:{folder}"

    async def commit_answer(
        self, attempt: int, request: LLMRequest, response: LLMResponse, payer: Payer | None = None
    ) -> None:
        """Return once the answer is committed; on a cancellation the answer may remain in its spool file.

        Without a ``payer``, the payer of the job is read and charged.
        """
        without_texts = request.model_copy(update={"messages": (), "tools": ()})
        held = SpooledAnswer(attempt=attempt, request=without_texts, response=response, payer=payer)
        file = self._folder / f"{_call_name(request.key)}.{attempt}.json"
        await commit_persistently(
            self._store, partial(self._commit_file, held, file), partial(self._keep_in_file, held, file)
        )

    def find_other_holder(self, key: CallKey) -> str:
        """Return the host and the folder where an earlier attempt keeps its answer; empty if not on another host."""
        note = self._notes.read()
        if not note:
            return ""
        call, holder = note
        return holder if call == _call_name(key) and holder != self._here else ""

    def has_files(self) -> bool:
        """Return whether any answer is in a spool file."""
        return bool(self._list_files())

    def commit_files(self) -> None:
        """Commit every answer that is in a spool file; raises ``StoreBusy`` if the store cannot be written."""
        for file in self._list_files():
            try:
                held = SpooledAnswer.model_validate_json(file.read_bytes())
            except FileNotFoundError:
                continue  # Another process committed the answer and removed its file.
            except ValidationError:
                log.warning("answer.unreadable", file=str(file))
                with suppress(FileNotFoundError):
                    file.rename(file.with_suffix(".unreadable"))
                continue
            self._commit_file(held, file)
            log.info("answer.recovered", job=held.request.key.job_id, call=held.request.key.number)

    def _commit_file(self, answer: SpooledAnswer, file: Path) -> None:
        """Commit an answer with its callback's rows and remove its file; if the callback fails, without these rows.

        The answer is paid for, so no error of the callback may keep it out of the store.
        """
        commit = partial(self._commit_to_store, answer)
        try:
            self._store.widen_scope(partial(commit, answer.request.on_answer))
        except (StoreBusy, ScopeTooNarrow):
            raise
        # Rows of the callback may be refused only at the commit. Any other error comes again without the callback.
        except Exception as error:
            if answer.request.on_answer is None:
                raise
            key = answer.request.key
            log.warning("answer.callback_failed", job=key.job_id, call=key.number, error=type(error).__name__)
            self._store.widen_scope(partial(commit, None))
        file.unlink(missing_ok=True)

    def _commit_to_store(self, answer: SpooledAnswer, on_answer: OnAnswer | None) -> None:
        request = answer.request
        with self._store.begin(job=request.key.job_id) as tx:
            # The cost is None if another process has committed this answer, or a restored backup lacks the call.
            cost = tx.llm.calls.store_answer(request.key, answer.attempt, answer.response, answer.payer)
            if cost is None:
                return
            tx.llm.accounts.record_success(request.account, request.model, cost)
            self._keep(tx, request, answer.response)
            if on_answer is not None:
                on_answer(tx, answer.response)

    async def _keep_in_file(self, answer: SpooledAnswer, file: Path) -> None:
        """Tell the next attempt where the answer is, and write its spool file; raises ``OSError``."""
        await self._notes.leave(_call_name(answer.request.key), self._here)
        # A thread of its own, because all threads of the pool may be waiting for the database's lock.
        thread = ThreadPoolExecutor(1, thread_name_prefix="spool")
        try:
            await asyncio.get_running_loop().run_in_executor(thread, self._write_file, answer, file)
        finally:
            thread.shutdown(wait=False)

    def _write_file(self, answer: SpooledAnswer, file: Path) -> None:
        """Write the spool file and flush it to the disk; raises ``OSError``."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        fresh = file.with_suffix(f".{os.getpid()}")
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as writing:
                writing.write(answer.model_dump_json().encode())
                writing.flush()
                os.fsync(writing.fileno())
            fresh.replace(file)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # This writes the directory entry of the new file to the disk.
        finally:
            os.close(descriptor)
        log.warning("answer.spooled", job=answer.request.key.job_id, call=answer.request.key.number, file=str(file))

    def _list_files(self) -> list[Path]:
        """Return the spool files, sorted by name; usually there are none, and no folder."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return [self._folder / name for name in sorted(names) if name.endswith(".json")]


def _call_name(key: CallKey) -> str:
    return f"{quote(key.job_id, safe='')}.{key.purpose}.{key.number}"


@dataclass(frozen=True, slots=True)
class PayerBudgets:
    """The payer of a call, the limits that apply, and the first of them that is used up.

    ``cheaper_model`` is called instead when a budget is used up; empty for none.
    """

    payer: Payer
    limits: tuple[BudgetLimit, ...] = ()
    used_up: BudgetLimit | None = None
    cheaper_model: str = ""


@dataclass(frozen=True, slots=True)
class CallSnapshot:
    """The rows by which middleware decides, read once: accounts, budgets, and unread posts of #maestro.

    The snapshot is a field of the request, and valid for one attempt that begins without a wait. Middleware that waits
    or calls again removes the snapshot (``remove_snapshot``), so that inner middleware reads the rows again.
    """

    roster: Roster
    budgets: PayerBudgets
    reminder_due: bool = False
    unread: UnreadPosts = NOTHING_UNREAD


def remove_snapshot(request: LLMRequest) -> LLMRequest:
    """Return the request without its snapshot, so that inner middleware reads the store again."""
    return request.model_copy(update={"snapshot": None})


@dataclass(slots=True)
class CallReader:
    """Reads snapshots; ``budgets`` returns the budget settings, ``chat`` says whether agents get #maestro posts."""

    store: Store
    book: AccountBook
    budgets: Callable[[], BudgetSettings]
    _: KW_ONLY
    chat: bool

    async def read_snapshot(self, request: LLMRequest) -> CallSnapshot:
        """Read a snapshot for a request that has none."""
        return await asyncio.to_thread(self.store.read, lambda tx: self._read_snapshot(tx, request))

    def read_answer_or_snapshot(self, tx: Transaction, request: LLMRequest) -> LLMResponse | CallSnapshot:
        """Return the stored answer to the call; without one, return a snapshot."""
        call = tx.llm.calls.find_answer(request.key)
        if call is None:
            return self._read_snapshot(tx, request)
        values = call.model_dump(include=set(LLMResponse.model_fields) - {"tool_calls"})
        return LLMResponse(**values, tool_calls=TOOL_CALLS.validate_json(call.tool_calls) if call.tool_calls else ())

    def _read_snapshot(self, tx: Transaction, request: LLMRequest) -> CallSnapshot:
        roster = self.book.read_roster_in(tx)
        job_id, budgets = request.key.job_id, self.budgets()
        payer = tx.jobs.callers.read_payer(job_id)
        limits = applicable_limits(payer, budgets)
        used_up = exceeded_limit(limits, tx.jobs.callers.read_spending_levels(job_id))
        spending = PayerBudgets(payer, limits, used_up, budgets.cheaper_model)
        if not (self.chat and receives_feed(request)):
            return CallSnapshot(roster, spending)
        unread, due = tx.chat.list_news(request.agent, job_id, UNREAD_POSTS)
        return CallSnapshot(roster, spending, due, unread)


@dataclass(frozen=True, slots=True)
class RequestTransaction:
    """A read transaction in which a request is built, and its stored answer or its snapshot is read.

    While answers are in spool files, ``ReplayGuard.complete`` reads instead, after it has committed those answers.
    """

    tx: Transaction
    reader: CallReader
    spooled: bool

    def add_snapshot(self, request: LLMRequest) -> LLMRequest:
        """Return the request with the stored answer to its call; without one, with a snapshot."""
        if self.spooled:
            return request
        return request.model_copy(update={"snapshot": self.reader.read_answer_or_snapshot(self.tx, request)})


@dataclass(slots=True)
class ReplayGuard:
    """The outermost middleware: returns the stored answer of a call instead of calling again.

    A request that was built in ``open_view`` has its stored answer or snapshot already; for other requests, the store
    is read.

    See docs/invariants.md: no answer bought twice.
    """

    inner: LLMClient
    store: Store
    reader: CallReader
    answers: AnswerSpool

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Return the stored answer of an earlier attempt; without one, pass the request on with its snapshot."""
        if request.snapshot is None:
            request = await asyncio.to_thread(self._read_answer_or_snapshot, request)
        if not isinstance(request.snapshot, LLMResponse) and (holder := self.answers.find_other_holder(request.key)):
            request = await self._wait_for_holder(request, holder)
        if isinstance(request.snapshot, LLMResponse):
            return request.snapshot
        try:
            return await self.inner.complete(request)
        except StepTaken:
            # An attempt that had stalled may have stored its answer after this request was built.
            request = await asyncio.to_thread(self._read_answer_or_snapshot, request)
            if isinstance(request.snapshot, LLMResponse):
                return request.snapshot
            raise

    async def _wait_for_holder(self, request: LLMRequest, holder: str) -> LLMRequest:
        """Return the request with its answer once the host that has it stored it; without it after a minute."""
        log.warning("answer.awaited", job=request.key.job_id, call=request.key.number, holder=holder)
        with suppress(TimeoutError):
            async with asyncio.timeout(HOLDER_SECONDS):
                while not isinstance(request.snapshot, LLMResponse):
                    await asyncio.sleep(LOOK_SECONDS)
                    request = await asyncio.to_thread(self._read_answer_or_snapshot, request)
        return request

    @contextmanager
    def open_view(self) -> Iterator[RequestTransaction]:
        """Open the read transaction in which a request is built."""
        spooled = self.answers.has_files()  # The spool is read first, because an open view does not see later commits.
        with self.store.view() as tx:
            yield RequestTransaction(tx, self.reader, spooled)

    def _read_answer_or_snapshot(self, request: LLMRequest) -> LLMRequest:
        self.answers.commit_files()
        with self.store.view() as tx:
            return RequestTransaction(tx, self.reader, spooled=False).add_snapshot(request)
