"""Steps 11 and 12 of a message: the final answer is recorded, with everything it asks for, in one transaction."""

from collections.abc import Callable
from dataclasses import replace

from temporalio import activity

from activities.acting import Acted, Acting, ActingRules
from maestro.domain.conducting.answers import shown
from maestro.domain.conversations.conversation import Said
from maestro.domain.errors import Stopped
from maestro.domain.jobs.flow import AnswerOutcome, AnswerStep
from maestro.domain.jobs.job import Ending, Job, JobStatus, Priority
from maestro.domain.llm.prompts import CallKey, Role
from maestro.domain.llm.tokens import estimate
from maestro.domain.redaction import Redact, redacted_value
from maestro.domain.tags.grammar import Parsed, Tag, TagName, parse
from maestro.store.store import Store
from maestro.store.transaction import Transaction


class TagActivities:
    """Acts on the model's final answer, and on nothing else (design invariant 10)."""

    def __init__(self, store: Store, rules: Callable[[], ActingRules]) -> None:
        self._store = store
        self._rules = rules

    @activity.defn
    def record_answer(self, step: AnswerStep) -> AnswerOutcome:
        """Act on the tags and record the assistant's message without them, under the job's key.

        What another agent waits to hear is not sent: with its record the job is over.
        """
        rules = self._rules()
        answer = self._answer(step, rules.redact)
        with self._store.begin() as tx:
            job = tx.jobs.get(step.job_id)
            if job.stop_requested:  # since the step began: what an answer asks for is not done after a stop
                raise Stopped(f"a person stopped job {job.id}")
            acted = Acting(tx, job, rules).on(answer.tags) if answer.tags else Acted()
            message = _record(tx, job, shown(answer.visible, acted.told, [task for task, _ in acted.tasks]))
            tx.jobs.update(job.id, answer_id=message.id)
            heard = job.parent_id is not None and tx.delegations.answers_to(job) is not None
            if heard:
                tx.close_job(job.id, Ending(status=JobStatus.COMPLETED))
            return tx.steps.done(step, _outcome(message, acted, heard=heard))

    def _answer(self, step: AnswerStep, redact: Redact) -> Parsed:
        """Read the answer; a search for secrets may take long, so it holds no transaction."""
        with self._store.view() as tx:
            content = tx.calls.answer(CallKey(job_id=step.job_id, number=step.number)).content
        answer = parse(content)
        return replace(answer, tags=tuple(_without_secrets(tag, redact) for tag in answer.tags))


def _without_secrets(tag: Tag, redact: Redact) -> Tag:
    """Return a tag without secrets in what it wants remembered (decision 21)."""
    if tag.name is TagName.MEMORY:
        return replace(tag, body=redact(tag.body))
    return replace(tag, body=redacted_value(redact, tag.key, tag.body)) if tag.name is TagName.STATE else tag


def _outcome(message: Said, acted: Acted, *, heard: bool) -> AnswerOutcome:
    jobs = [job for _, job in acted.tasks]
    return AnswerOutcome(
        message_id=message.id or 0,
        heard=heard,
        begun=tuple(job.id for job in jobs),
        priority=max((job.priority for job in jobs), default=Priority.DELEGATION),
    )


def _record(tx: Transaction, job: Job, text: str) -> Said:
    """Keep what the agent said; the answers of jobs that this one restarts, and what they led to, count no more."""
    if job.restarted_from:
        earlier = tx.jobs.ancestors(job)
        tx.conversations.supersede([*earlier, *(other.id for other in tx.delegations.below(earlier))])
    of_another = tx.conversations.read(job.conversation_id).agent_id != job.agent_id
    return tx.conversations.add(
        Said(
            conversation_id=job.conversation_id or 0,
            role=Role.ASSISTANT,
            content=text,
            token_estimate=estimate(text),
            job_id=job.id,
            agent_id=job.agent_id if of_another else None,
            created_at=tx.now,
        )
    )
