"""Queries for model calls: a request is committed before it is sent, an answer before it has any effect.

See docs/invariants.md: no answer bought twice.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import NamedTuple

from sqlalchemy import bindparam, func, inspect, null, or_, union_all, update
from sqlmodel import col, select

from maestro.domain.errors import StepTaken
from maestro.domain.jobs.job import Job, JobStep, StepState
from maestro.domain.llm.budgets import Payer
from maestro.domain.llm.calls import CallEstimate, CallState, Expense, LLMCall, PromptPart
from maestro.domain.llm.prompts import TOOL_CALLS, CallKey, CallPurpose, LLMResponse
from maestro.store.engine.repository import LazyRepository, Repository, read_once, require_found
from maestro.store.engine.statements import PreparedStatement, is_in_list, row_insert, write_json_list
from maestro.store.jobs.related import ModelCallers
from maestro.store.jobs.steps import StepRecords, current_recorded_attempt
from maestro.store.llm.accounts import Accounts
from maestro.store.llm.budgets import Budgets, CallCharge, UsageLog, key_values

FREE = Expense()
"""The expense of an attempt whose request never reached a model."""


class LastAttempt(NamedTuple):
    """The last attempt at a model call, or an attempt with a stored answer, and the digest of its request."""

    attempt: int
    state: CallState
    request: str


class Calls(Repository):
    """Queries for the attempts at model calls.

    The end of an attempt records its cost exactly once: in its row, its usage row, the budgets and the account. This
    also holds for an attempt that ends after a newer attempt had marked it as interrupted.
    """

    _budgets = LazyRepository(Budgets)

    _OF_KEY = (
        col(LLMCall.job_id) == bindparam("of_job"),
        col(LLMCall.purpose) == bindparam("its_purpose"),
        col(LLMCall.number) == bindparam("its_number"),
    )
    _ANSWERED = PreparedStatement(
        select(LLMCall).where(*_OF_KEY, LLMCall.state == CallState.ANSWERED).order_by(col(LLMCall.attempt)).limit(1)
    )
    _LAST = PreparedStatement(
        select(LLMCall.attempt, LLMCall.state, LLMCall.request)
        .where(*_OF_KEY)
        .order_by((col(LLMCall.state) == CallState.ANSWERED).desc(), col(LLMCall.attempt).desc())
        .limit(1)
    )
    _NEWEST = select(func.max(LLMCall.attempt)).where(*_OF_KEY).correlate(None).scalar_subquery()
    # The result has a row for each stored text (its digest), for the last attempt, for each attempt with an answer, and
    # for the step.
    _BEFORE_SENDING = PreparedStatement(
        union_all(
            select(null(), PromptPart.digest, null()).where(is_in_list(col(PromptPart.digest), "digests")),
            select(LLMCall.attempt, LLMCall.request, LLMCall.state).where(
                *_OF_KEY, or_(col(LLMCall.attempt) == _NEWEST, col(LLMCall.state) == CallState.ANSWERED)
            ),
            select(null(), null(), JobStep.state).where(
                col(JobStep.job_id) == bindparam("own_job"),
                col(JobStep.step) == bindparam("of_step"),
                col(JobStep.attempt) == bindparam("its_attempt"),
            ),
        )
    )
    _UNDER_WAY = PreparedStatement(
        select(LLMCall.purpose, LLMCall.number, LLMCall.attempt).where(
            col(LLMCall.job_id) == bindparam("of_job"), LLMCall.state == CallState.SENT
        )
    )

    @read_once
    def find_answer(self, key: CallKey) -> LLMCall | None:
        """Return the stored answer of a call, or None; if the call has two answers, return the first."""
        return self._read_model(self._ANSWERED, LLMCall, **key_values(key))

    def get_answer(self, key: CallKey) -> LLMCall:
        """Return the stored answer of a call; raises ``NotFound``."""
        return require_found(self.find_answer(key), f"job {key.job_id} has no answer to model call {key.number}")

    def find_newest_answer(self, conversation_id: int | None, purpose: CallPurpose) -> LLMCall | None:
        """Return the newest stored answer for a purpose among all jobs of a conversation."""
        return self._find_first(
            select(LLMCall)
            .join(Job, col(Job.id) == LLMCall.job_id)
            .where(
                Job.conversation_id == conversation_id, LLMCall.purpose == purpose, LLMCall.state == CallState.ANSWERED
            )
            .order_by(col(LLMCall.id).desc())
            .limit(1)
        )

    def read_costs(self, job_ids: Collection[str]) -> Mapping[str, float]:
        """Return the known costs of these jobs in US dollars, by job id, without jobs that have no known cost."""
        known = (col(LLMCall.state).in_((CallState.ANSWERED, CallState.FAILED)), col(LLMCall.cost_usd).is_not(None))
        costs = select(LLMCall.job_id, func.sum(LLMCall.cost_usd)).where(col(LLMCall.job_id).in_(job_ids), *known)
        return dict(self._run_statement(costs.group_by(col(LLMCall.job_id))).all())

    def read_rows_before_sending(self, key: CallKey, digests: Collection[str]) -> frozenset[str]:
        """Read the rows needed before a request is sent; return those of its digests whose texts are stored.

        Caches the last attempt at the call for this transaction, and whether a newer attempt at the step has begun.
        """
        own = current_recorded_attempt()
        job_id, step, number = (own.ref.job_id, own.ref.step, own.number) if own is not None else ("", "", 0)
        last, step_state, stored = None, None, set()
        values = {"own_job": job_id, "of_step": step, "its_attempt": number, **key_values(key)}
        for attempt, digest, state in self._read_rows(self._BEFORE_SENDING, digests=write_json_list(digests), **values):
            if attempt is not None:
                if last is None or state == CallState.ANSWERED:
                    last = LastAttempt(attempt, CallState(state), digest)
            elif digest is not None:
                stored.add(digest)
            else:
                step_state = StepState(state)
        self._cached_values()["_read_last_attempt", (key,)] = last
        if own is not None:
            StepRecords(self._link, self._now).cache_state(own, step_state)
        return frozenset(stored)

    def record_sending(self, key: CallKey, request: str, estimate: CallEstimate, told: tuple[int, int] = (0, 0)) -> int:
        """Record that the request with the digest ``request`` is about to be sent; return the attempt's number.

        The row has the estimated cost, in case the process dies before the answer gives the cost. An earlier attempt
        that is still marked as sent has died or stalled, and is marked as interrupted. Raises ``StepTaken`` in a
        process that stalled so long that Temporal gave its step to another process, and if another attempt has stored
        an answer since this process looked for one. ``told`` are two post ids of the agent chat: the request contains
        the posts after the first id, up to the second.
        """
        StepRecords(self._link, self._now).require_newest()
        last = self._read_last_attempt(key)
        if last is not None and last.state is CallState.ANSWERED:
            raise StepTaken(f"attempt {last.attempt} at model call {key.number} of job {key.job_id} is answered")
        if last is not None and last.state is CallState.SENT:
            self.record_interruption(key, last.attempt)
        attempt = last.attempt + 1 if last is not None else 1
        row = LLMCall(
            **key.model_dump(),
            **asdict(estimate),
            attempt=attempt,
            state=CallState.SENT,
            request=request,
            chat_after=told[0],
            chat_upto=told[1],
            started_at=self._now,
        )
        self._write(row_insert(LLMCall), **vars(row))
        return attempt

    def find_interrupted_request(self, key: CallKey) -> str | None:
        """Return the digest of the last attempt's request if that attempt was interrupted, else None.

        After a failure the request is built again, so that an operator's correction takes effect.
        """
        last = self._read_last_attempt(key)
        cut_off = last is not None and last.state in (CallState.SENT, CallState.INTERRUPTED)
        return last.request if last is not None and cut_off else None

    def store_answer(
        self, key: CallKey, attempt: int, response: LLMResponse, payer: Payer | None = None
    ) -> float | None:
        """Store the answer of a model to a call, and settle the call's reservation.

        Returns the US dollars that the caller must still charge to the account. Stores nothing and returns None if an
        answer is already stored, or if the attempt is unknown. An attempt that a newer attempt marked as interrupted is
        stored. ``payer`` is the call's payer, if the caller knows it.
        """
        tools = TOOL_CALLS.dump_json(response.tool_calls).decode() if response.tool_calls else ""
        values = {"state": CallState.ANSWERED, "tool_calls": tools, **response.model_dump(exclude={"tool_calls"})}
        charge = self._end_attempt(key, attempt, values, payer, unless=CallState.ANSWERED)
        if charge is None:
            return None
        self._budgets.settle_cost(key, charge.cost_usd, charge.payer)
        return charge.cost_usd

    def record_failure(self, key: CallKey, attempt: int, error: str, expense: Expense = FREE) -> None:
        """End an attempt as failed; ``error`` is the name of the error's class."""
        took = {"cost_usd": expense.cost_usd, "duration_ms": expense.duration_ms, **expense.usage.model_dump()}
        self._end_unanswered(key, attempt, {"state": CallState.FAILED, "error": error, **took})

    def record_interruption(self, key: CallKey, attempt: int, duration_ms: int | None = None) -> None:
        """End an attempt as interrupted before its answer came; the estimated cost counts as spent."""
        self._end_unanswered(key, attempt, {"state": CallState.INTERRUPTED, "duration_ms": duration_ms})

    def record_unsent(self, key: CallKey, attempt: int) -> None:
        """End an attempt as interrupted before its request was sent, with a cost of 0."""
        self._end_unanswered(key, attempt, {"state": CallState.INTERRUPTED, "input_tokens": 0, "cost_usd": 0.0})

    def close_calls(self, job_id: str) -> None:
        """End all open attempts of a job that ends, and release the job's reservations."""
        for purpose, number, attempt in self._read_rows(self._UNDER_WAY, of_job=job_id):
            self.record_interruption(CallKey(job_id=job_id, purpose=purpose, number=number), attempt)
        self._budgets.release_all_of_job(job_id)

    def count_failures(self, key: CallKey) -> int:
        """Count the failed attempts at a call."""
        return self._session.exec(
            select(func.count()).select_from(LLMCall).where(*self._OF_KEY, LLMCall.state == CallState.FAILED),
            params=key_values(key),
        ).one()

    def list_calls_of_job(self, job_id: str) -> Sequence[LLMCall]:
        """Return all attempts at the model calls of a job, oldest first."""
        return self._find_all(select(LLMCall).where(LLMCall.job_id == job_id).order_by(col(LLMCall.id)))

    def _end_unanswered(self, key: CallKey, attempt: int, values: Mapping[str, object]) -> None:
        """End an attempt without an answer, and count its cost.

        If the estimate was counted before and the cost is lower, the counted difference is negative.
        """
        charge = self._end_attempt(key, attempt, values)
        if charge is not None and charge.cost_usd:
            self._budgets.add_cost(key, charge.cost_usd, charge.payer)
            Accounts(self._link, self._now).add_cost(key, attempt, charge.cost_usd)

    @read_once
    def _read_last_attempt(self, key: CallKey) -> LastAttempt | None:
        row = self._read_row(self._LAST, **key_values(key))
        return LastAttempt(*row) if row else None

    def _end_attempt(
        self,
        key: CallKey,
        attempt: int,
        values: Mapping[str, object],
        payer: Payer | None = None,
        *,
        unless: CallState | None = None,
    ) -> CallCharge | None:
        """Store the end of an attempt; return the change of its known cost, and its payer.

        Returns None and changes nothing if the attempt is already in the state ``unless`` or does not exist.
        """
        which = {**key_values(key), "its_attempt": attempt, "new_finished_at": self._now}
        which |= {f"new_{name}": value for name, value in values.items()}
        names, counted = ("finished_at", *values), 0.0
        usage = UsageLog(self._link, self._now)
        call = self._run_ending(_ending_statement(names, CallState.SENT), key, which)
        if call is None:
            # A newer attempt has marked this attempt as interrupted, and counted the estimated cost as spent.
            call = self._run_ending(_ending_statement(names, unless, is_open=False), key, which)
            if call is None:
                return None
            counted = usage.delete_attempt(key, attempt)
        charge = usage.add_attempt(call, payer or ModelCallers(self._link, self._now).read_payer(key.job_id))
        return charge._replace(cost_usd=charge.cost_usd - counted)

    def _run_ending(self, prepared: PreparedStatement, key: CallKey, values: Mapping[str, object]) -> LLMCall | None:
        """Run a statement of ``_ending_statement``; return the attempt that it ended, or None if it ended none."""
        for row in self._run_returning(prepared, **values):
            call = prepared.convert_row(LLMCall, row)
            # The first attempt's answer takes precedence over answers of later attempts, so it is cached.
            if call.state is CallState.ANSWERED and call.attempt == 1:
                self._cached_values()["find_answer", (key,)] = call
            return call
        return None


@cache
def _ending_statement(names: tuple[str, ...], state: CallState | None, *, is_open: bool = True) -> PreparedStatement:
    """Return the statement that ends an attempt in the state ``state``, and that returns the changed row.

    Without ``is_open``, the statement ends an attempt in any state except ``state``.
    """
    ended = update(LLMCall).where(*Calls._OF_KEY, col(LLMCall.attempt) == bindparam("its_attempt"))
    if state is not None:
        ended = ended.where(col(LLMCall.state) == state if is_open else col(LLMCall.state) != state)
    changed = ended.values({name: bindparam(f"new_{name}") for name in names})
    return PreparedStatement(changed.returning(*inspect(LLMCall).c))
