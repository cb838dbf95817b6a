"""Answers of models that the store has not taken yet: kept in memory, in a spool file, and committed when it can be."""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

import structlog
from pydantic import ValidationError

from maestro.domain.llm.budgets import Payer
from maestro.domain.llm.prompts import LLMRequest, LLMResponse, OnAnswer
from maestro.domain.values import Value
from maestro.store.commits import committed
from maestro.store.store import Store
from maestro.store.transaction import Transaction

FOLDER = "answers"
"""Beside the database; answers are in it only while the database cannot be written."""

Keep = Callable[[Transaction, LLMRequest, LLMResponse], None]
"""Keeps something more with an answer, in its transaction."""

log = structlog.get_logger(__name__)


def nothing_more(_tx: Transaction, _request: LLMRequest, _response: LLMResponse) -> None:
    """Keep nothing but the answer."""


class HeldAnswer(Value):
    """The answer to one attempt at a call; of its request only what is needed to commit it."""

    attempt: int
    request: LLMRequest
    response: LLMResponse
    payer: Payer | None = None


class _CallbackFailed(Exception):
    """What should have followed from an answer could not be done with it; the cause says why."""


class HeldAnswers:
    """Commits answers, each exactly once, however often that has to be tried and by whichever process.

    The spool file says which attempt it answers. So an answer whose process died between its commit and the removal of
    its file is found committed, and the file is only removed.
    """

    def __init__(self, store: Store, keep: Keep = nothing_more) -> None:
        """``keep`` is called for every answer, in the transaction that commits it."""
        self._store = store
        self._keep = keep
        self._folder = store.path.with_name(FOLDER)

    async def commit(
        self, attempt: int, request: LLMRequest, response: LLMResponse, payer: Payer | None = None
    ) -> None:
        """Return once the answer is in the store; a cancellation leaves it in its spool file.

        ``payer`` is who is charged, where that is known: else it is read.
        """
        without_texts = request.model_copy(update={"messages": (), "tools": ()})
        held = HeldAnswer(attempt=attempt, request=without_texts, response=response, payer=payer)
        await committed(self._store, partial(self._committed, held, self._file(held)), partial(self._spool, held))

    def spooled(self) -> bool:
        """Say whether any answer is in a spool file."""
        return bool(self._files())

    def recover(self) -> None:
        """Commit every answer that is in a spool file; raises ``StoreBusy`` while that cannot be done."""
        for file in self._files():
            try:
                held = HeldAnswer.model_validate_json(file.read_bytes())
            except FileNotFoundError:
                continue  # another process was faster
            except ValidationError:
                log.warning("answer.unreadable", file=str(file))
                with suppress(FileNotFoundError):
                    file.rename(file.with_suffix(".unreadable"))
                continue
            self._committed(held, file)
            log.info("answer.recovered", job=held.request.key.job_id, call=held.request.key.number)

    def _committed(self, held: HeldAnswer, file: Path) -> None:
        """Commit an answer with what follows from it; where that fails, the answer alone.

        The answer is paid for: no error in what follows from it may keep it out of the store.
        """
        try:
            self._commit(held, held.request.on_answer)
        except _CallbackFailed as failed:
            key, error = held.request.key, type(failed.__cause__).__name__
            log.warning("answer.callback_failed", job=key.job_id, call=key.number, error=error)
            self._commit(held, None)
        file.unlink(missing_ok=True)

    def _commit(self, held: HeldAnswer, on_answer: OnAnswer | None) -> None:
        request = held.request
        with self._store.begin() as tx:
            # Who found its file may have committed it already; a restored backup may not know the call.
            cost = tx.calls.keep_answer(request.key, held.attempt, held.response, held.payer)
            if cost is None:
                return
            tx.accounts.succeeded(request.account, request.model, cost)
            self._keep(tx, request, held.response)
            if on_answer is not None:
                _call(tx, on_answer, held.response)

    def _spool(self, held: HeldAnswer) -> None:
        """Write the file and see that it is on the disk; raises ``OSError``."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        file = self._file(held)
        fresh = file.with_suffix(f".{os.getpid()}")
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as writing:
                writing.write(held.model_dump_json().encode())
                writing.flush()
                os.fsync(writing.fileno())
            fresh.replace(file)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        _flush(self._folder)
        log.warning("answer.spooled", job=held.request.key.job_id, call=held.request.key.number, file=str(file))

    def _files(self) -> list[Path]:
        """Return the spool files, oldest attempts first; almost always there are none, and often no folder."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return [self._folder / name for name in sorted(names) if name.endswith(".json")]

    def _file(self, held: HeldAnswer) -> Path:
        key = held.request.key
        return self._folder / f"{quote(key.job_id, safe='')}.{key.purpose}.{key.number}.{held.attempt}.json"


def _call(tx: Transaction, on_answer: OnAnswer, response: LLMResponse) -> None:
    """Do, and write, what the caller wants done in the transaction of its answer; raises ``_CallbackFailed``."""
    try:
        on_answer(tx, response)
        tx.flush()
    # Whatever it is, it is about what follows from the answer, and not about the answer.
    except Exception as error:
        raise _CallbackFailed from error


def _flush(folder: Path) -> None:
    """See that the name of a new file is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
