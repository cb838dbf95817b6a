"""Step 10 of a message: the final answer is recorded, with everything it asks for, in one transaction."""

from temporalio import activity

from maestro.domain.calls import LLMCall
from maestro.domain.conversations import Message
from maestro.domain.flow import AnswerOutcome, AnswerStep
from maestro.domain.jobs import Job
from maestro.domain.prompts import CallKey, Role
from maestro.domain.tokens import estimate
from maestro.store.store import Store
from maestro.store.transaction import Transaction


class TagActivities:
    """Acts on the model's final answer, and on nothing else (design invariant 10)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @activity.defn
    def record_answer(self, step: AnswerStep) -> AnswerOutcome:
        """Record the assistant's message of this job once (specification 003, step 12)."""
        with self._store.begin() as tx:
            job = tx.jobs.get(step.job_id)
            call = tx.calls.answer(CallKey(job_id=step.job_id, number=step.number))
            message = tx.conversations.answer_of_job(job.id) or _record(tx, job, call)
            tx.jobs.update(job.id, answer_id=message.id)
            return tx.steps.done(step, AnswerOutcome(message_id=message.id or 0))


def _record(tx: Transaction, job: Job, call: LLMCall) -> Message:
    if job.restarted_from:
        tx.conversations.supersede(tx.jobs.ancestors(job))
    return tx.conversations.add(
        Message(
            conversation_id=job.conversation_id or 0,
            role=Role.ASSISTANT,
            content=call.content,
            token_estimate=estimate(call.content),
            job_id=job.id,
            created_at=tx.now,
        )
    )
