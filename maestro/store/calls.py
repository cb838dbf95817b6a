"""Model calls: the request before it leaves, the answer before anybody acts on it (design invariant 5)."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, func
from sqlmodel import col, select, update

from maestro.domain.calls import CallEstimate, CallState, LLMCall
from maestro.domain.jobs import Job
from maestro.domain.prompts import CallKey, CallPurpose, LLMResponse
from maestro.store.repository import Repository


class Calls(Repository):
    """All attempts at all model calls."""

    def answered(self, key: CallKey) -> LLMCall | None:
        """Return the answer we hold for this call, the first one if there were two."""
        return self._session.exec(
            select(LLMCall).where(*_of(key), LLMCall.state == CallState.ANSWERED).order_by(col(LLMCall.attempt))
        ).first()

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
        last, state = self._last(key)
        if state is CallState.SENT:
            self._finish(key, last, state=CallState.INTERRUPTED)
        attempt = last + 1
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
        attempt, state = self._last(key)
        if state not in (CallState.SENT, CallState.INTERRUPTED):
            return None
        sent = self._run(select(LLMCall.request).where(*_of(key), col(LLMCall.attempt) == attempt))
        return str(sent.scalar_one())

    def keep_answer(self, key: CallKey, attempt: int, response: LLMResponse) -> None:
        """Commit what the model said under the key of its request."""
        self._finish(key, attempt, state=CallState.ANSWERED, **response.model_dump())

    def failed(self, key: CallKey, attempt: int, error: str) -> None:
        """Note that the attempt failed; ``error`` is the name of its class."""
        self._finish(key, attempt, state=CallState.FAILED, error=error, input_tokens=0, cost_usd=None)

    def interrupted(self, key: CallKey, attempt: int) -> None:
        """Note that the attempt was broken off before it was answered."""
        self._finish(key, attempt, state=CallState.INTERRUPTED)

    def failures(self, key: CallKey) -> int:
        """Count the failed attempts of this call."""
        return self._session.exec(
            select(func.count()).select_from(LLMCall).where(*_of(key), LLMCall.state == CallState.FAILED)
        ).one()

    def of(self, job_id: str) -> Sequence[LLMCall]:
        """Return every attempt of a job's calls in the order they were made."""
        return self._session.exec(select(LLMCall).where(LLMCall.job_id == job_id).order_by(col(LLMCall.id))).all()

    def _last(self, key: CallKey) -> tuple[int, CallState | None]:
        """Return the number of the last attempt and what became of it; 0 and None when there was none."""
        attempts = select(LLMCall.attempt, LLMCall.state).where(*_of(key)).order_by(col(LLMCall.attempt).desc())
        last = self._run(attempts.limit(1)).first()
        return (last[0], last[1]) if last else (0, None)

    def _finish(self, key: CallKey, attempt: int, **values: object) -> None:
        self._run(
            update(LLMCall).where(*_of(key), col(LLMCall.attempt) == attempt).values(finished_at=self._now, **values)
        )


def _of(key: CallKey) -> tuple[ColumnElement[bool], ...]:
    """Pick out the attempts of one call."""
    return (col(LLMCall.job_id) == key.job_id, col(LLMCall.purpose) == key.purpose, col(LLMCall.number) == key.number)
