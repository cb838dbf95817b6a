"""Model calls: the request before it leaves, the answer before anybody acts on it (design invariant 5)."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, func
from sqlmodel import col, select, update

from maestro.domain.calls import CallEstimate, CallState, LLMCall
from maestro.domain.errors import NotFound
from maestro.domain.jobs import Job
from maestro.domain.prompts import TOOL_CALLS, CallKey, CallPurpose, LLMResponse
from maestro.store.repository import Repository


@dataclass(frozen=True, slots=True)
class Last:
    """The last attempt at a call, and the digest of what it sent."""

    attempt: int
    state: CallState
    request: str


class Calls(Repository):
    """All attempts at all model calls."""

    _OF_KEY = (
        col(LLMCall.job_id) == bindparam("of_job"),
        col(LLMCall.purpose) == bindparam("its_purpose"),
        col(LLMCall.number) == bindparam("its_number"),
    )
    _ANSWERED = (
        select(LLMCall).where(*_OF_KEY, LLMCall.state == CallState.ANSWERED).order_by(col(LLMCall.attempt)).limit(1)
    )
    _LAST = (
        select(LLMCall.attempt, LLMCall.state, LLMCall.request)
        .where(*_OF_KEY)
        .order_by(col(LLMCall.attempt).desc())
        .limit(1)
    )

    def answered(self, key: CallKey) -> LLMCall | None:
        """Return the answer we hold for this call, the first one if there were two."""
        return self._session.exec(self._ANSWERED, params=_values(key)).first()

    def answer(self, key: CallKey) -> LLMCall:
        """Return the answer to a call that must have one; raises ``NotFound``."""
        call = self.answered(key)
        if call is None:
            raise NotFound(f"job {key.job_id} holds no answer to call {key.number}")
        return call

    def newest_answer(self, conversation_id: int | None, purpose: CallPurpose) -> LLMCall | None:
        """Return the newest answer of this purpose that any job of the conversation holds."""
        return self._session.exec(
            select(LLMCall)
            .join(Job, col(Job.id) == LLMCall.job_id)
            .where(
                Job.conversation_id == conversation_id,
                LLMCall.purpose == purpose,
                LLMCall.state == CallState.ANSWERED,
            )
            .order_by(col(LLMCall.id).desc())
            .limit(1)
        ).first()

    def sent(self, key: CallKey, request: str, estimate: CallEstimate) -> int:
        """Note that a request, given by its digest, is about to leave; return the number of this attempt.

        The estimate stays in the row should the process die before the answer says what it really took.

        An earlier attempt still marked as sent belonged to a process that died: it is marked as interrupted.
        """
        last = self._last(key)
        if last is not None and last.state is CallState.SENT:
            self._finish(key, last.attempt, state=CallState.INTERRUPTED)
        attempt = last.attempt + 1 if last is not None else 1
        self._session.add(
            LLMCall(
                job_id=key.job_id,
                purpose=key.purpose,
                number=key.number,
                attempt=attempt,
                state=CallState.SENT,
                request=request,
                provider=estimate.provider,
                model=estimate.model,
                input_tokens=estimate.input_tokens,
                cost_usd=estimate.cost_usd,
                started_at=self._now,
            )
        )
        return attempt

    def cut_off_request(self, key: CallKey) -> str | None:
        """Return the digest of what the last attempt sent, if that attempt was cut off before it could end.

        After a failure the request is made anew, so that what an operator mended takes effect.
        """
        last = self._last(key)
        cut_off = last is not None and last.state in (CallState.SENT, CallState.INTERRUPTED)
        return last.request if last is not None and cut_off else None

    def keep_answer(self, key: CallKey, attempt: int, response: LLMResponse) -> None:
        """Commit what the model said under the key of its request."""
        tools = TOOL_CALLS.dump_json(response.tool_calls).decode() if response.tool_calls else ""
        said = response.model_dump(exclude={"tool_calls"})
        self._finish(key, attempt, state=CallState.ANSWERED, tool_calls=tools, **said)

    def failed(self, key: CallKey, attempt: int, error: str) -> None:
        """Note that the attempt failed; ``error`` is the name of its class."""
        self._finish(key, attempt, state=CallState.FAILED, error=error, input_tokens=0, cost_usd=None)

    def interrupted(self, key: CallKey, attempt: int) -> None:
        """Note that the attempt was broken off before it was answered."""
        self._finish(key, attempt, state=CallState.INTERRUPTED)

    def failures(self, key: CallKey) -> int:
        """Count the failed attempts of this call."""
        return self._session.exec(
            select(func.count()).select_from(LLMCall).where(*self._OF_KEY, LLMCall.state == CallState.FAILED),
            params=_values(key),
        ).one()

    def of(self, job_id: str) -> Sequence[LLMCall]:
        """Return every attempt of a job's calls in the order they were made."""
        return self._session.exec(select(LLMCall).where(LLMCall.job_id == job_id).order_by(col(LLMCall.id))).all()

    def _last(self, key: CallKey) -> Last | None:
        row = self._run(self._LAST, **_values(key)).first()
        return Last(*row) if row else None

    def _finish(self, key: CallKey, attempt: int, **values: object) -> None:
        ended = update(LLMCall).where(*self._OF_KEY, col(LLMCall.attempt) == attempt)
        self._run(ended.values(finished_at=self._now, **values), **_values(key))


def _values(key: CallKey) -> dict[str, object]:
    """Pick out the attempts of one call."""
    return {"of_job": key.job_id, "its_purpose": key.purpose, "its_number": key.number}
