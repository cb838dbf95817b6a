"""Compaction: in a conversation too long for its model, facts and a summary replace the older messages."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from temporalio import activity

from activities.context import memory_scope_of_job
from maestro.domain.agents.agent import MemoryScope
from maestro.domain.conversations.conversation import (
    INSTRUCTIONS,
    Compaction,
    Excerpt,
    Message,
    excerpt,
    excerpt_budget,
    instruct,
    output_tokens,
    removable_messages,
)
from maestro.domain.jobs.flow import CompactionOutcome
from maestro.domain.jobs.job import Job, StepRef
from maestro.domain.llm.calls import LLMCall
from maestro.domain.llm.models import estimate
from maestro.domain.llm.prompts import CallKey, CallPurpose, LLMRequest, StoredRequest
from maestro.domain.media import prompt_text
from maestro.domain.memory.facts import parse_facts
from maestro.domain.precedence import Precedence
from maestro.domain.redaction import Redact, keep_text, redact_messages
from maestro.llm.protocols import LLMClient
from maestro.store.store import Store
from maestro.store.transaction import Transaction


@dataclass(frozen=True)
class CompactionPlan:
    """The messages to compact, the model to call, and the answers that earlier jobs stored, by purpose."""

    job: Job
    precedence: Precedence
    excerpt: Excerpt
    model: str
    max_output_tokens: int
    held: Mapping[CallPurpose, str]

    def request(self, purpose: CallPurpose) -> LLMRequest:
        """Return the model call for the facts or the summary; it finds an answer stored for the same messages."""
        return LLMRequest(
            key=CallKey(job_id=self.held.get(purpose, self.job.id), number=self.excerpt.ids[-1], purpose=purpose),
            platform=self.job.platform,
            model=self.model,
            messages=instruct(purpose, self.excerpt.text),
            max_output_tokens=self.max_output_tokens,
            precedence=self.precedence,
        )


@dataclass(frozen=True)
class CompactionAnswers:
    """The model's answers about the excerpt: the summary, and the number of facts."""

    summary: str
    facts: int


@dataclass(frozen=True)
class CompactionRules:
    """Settings: the context window in tokens, the tokens of the longest answer, and the memory scope.

    ``redact`` removes secrets from facts, ``redact_prompts`` from prompts.
    """

    window: Callable[[str], int]
    max_output_tokens: int
    memory_scope: MemoryScope
    redact: Redact = keep_text
    redact_prompts: Redact = keep_text


class CompactionActivities:
    """Compacts conversations whose messages no longer fit into the context window."""

    def __init__(self, store: Store, llm: LLMClient, rules: Callable[[], CompactionRules]) -> None:
        self._store = store
        self._llm = llm
        self._rules = rules

    @activity.defn
    async def compact_conversation(self, ref: StepRef) -> CompactionOutcome:
        """Store the facts of the older messages, then their summary, and only then archive the messages.

        Each of these phases is committed separately: a failure deletes no message, and a retry pays for no answer
        twice.
        """
        plan = await asyncio.to_thread(self._plan, ref)
        if not plan.excerpt.ids:
            return await asyncio.to_thread(self._nothing, ref)
        facts = await self._llm.complete(plan.request(CallPurpose.FACTS))
        learned = await asyncio.to_thread(self._learn, plan.job, facts.content)
        summary = await self._llm.complete(plan.request(CallPurpose.SUMMARY))
        return await asyncio.to_thread(self._archive, ref, CompactionAnswers(summary.content.strip(), learned), plan)

    def _plan(self, ref: StepRef) -> CompactionPlan:
        with self._store.view() as tx:
            job = tx.jobs.get(ref.job_id)
            agent = tx.agents.get(job.agent_id)
            tokens = self._rules().window(agent.model or tx.llm.accounts.default_model())
            about = _HeldAnswers(tx, self._rules().redact_prompts)
            going = _excerpt(about, job, excerpt_budget(tokens))
            return CompactionPlan(
                job=job,
                precedence=tx.jobs.precedence_of(job),
                excerpt=going,
                held=_find_answers(about, job, going),
                model=agent.model,
                max_output_tokens=output_tokens(tokens, self._rules().max_output_tokens),
            )

    def _learn(self, job: Job, answer: str) -> int:
        # Secrets are removed before a fact is cut, because a cut could leave an unrecognisable half of a secret.
        facts = parse_facts(self._rules().redact(answer))
        with self._store.begin() as tx:
            place = memory_scope_of_job(tx, job, self._rules().memory_scope)
            tx.memory.learn(job.agent_id or 0, facts, conversation_id=job.conversation_id, place=place)
        return len(facts)

    def _archive(self, ref: StepRef, gist: CompactionAnswers, plan: CompactionPlan) -> CompactionOutcome:
        summary = self._rules().redact(gist.summary)
        with self._store.begin() as tx:
            kept = _replace(tx, plan, summary)
            return tx.jobs.steps.done(
                ref,
                CompactionOutcome(
                    compaction_id=kept.id or 0,
                    archived=len(plan.excerpt.ids),
                    facts=gist.facts,
                    tokens_saved=kept.tokens_saved,
                ),
            )

    def _nothing(self, ref: StepRef) -> CompactionOutcome:
        with self._store.begin() as tx:
            return tx.jobs.steps.done(ref, CompactionOutcome(compaction_id=0))


@dataclass(frozen=True)
class _HeldAnswers:
    """Finds stored answers of the model, and the excerpts they are about; ``redact`` removes secrets from prompts."""

    tx: Transaction
    redact: Redact

    def part(self, call: LLMCall, part: Excerpt) -> bool:
        """Return whether a model was asked about exactly this excerpt."""
        if not part.ids or part.ids[-1] != call.number:
            return False
        kept = StoredRequest.model_validate_json(self.tx.llm.prompts.text(call.request))
        asked, wanted = self.tx.llm.prompts.unpack(kept.turns), instruct(call.purpose, part.text)
        return asked == wanted or asked == redact_messages(wanted, self.redact)


def _excerpt(about: _HeldAnswers, job: Job, budget: int) -> Excerpt:
    """Return the part of the job's conversation to archive."""
    tx = about.tx
    asked = frozenset(row.id for row in tx.jobs.merged.answered_messages(job))
    going = removable_messages(tx.conversations.all_of(job.conversation_id or 0), asked)
    files = tx.inbox.media.of([message.inbox_id for message in going if message.inbox_id is not None])
    read = [(message, prompt_text(message.content, files.get(message.inbox_id or 0, ()))) for message in going]
    return _unfinished_excerpt(about, job, read, budget) or excerpt(read, budget)


def _unfinished_excerpt(
    about: _HeldAnswers, job: Job, read: Sequence[tuple[Message, str]], budget: int
) -> Excerpt | None:
    """Return the excerpt whose facts an earlier job stored without archiving its messages; None without one."""
    facts = about.tx.llm.calls.newest_answer(job.conversation_id, CallPurpose.FACTS)
    if facts is None:
        return None
    part = excerpt([(message, text) for message, text in read if (message.id or 0) <= facts.number], budget)
    return part if about.part(facts, part) else None


def _find_answers(about: _HeldAnswers, job: Job, part: Excerpt) -> Mapping[CallPurpose, str]:
    """Return by purpose which job has a stored answer about exactly this excerpt.

    See docs/invariants.md: no answer bought twice.
    """
    newest = (about.tx.llm.calls.newest_answer(job.conversation_id, purpose) for purpose in INSTRUCTIONS)
    return {call.purpose: call.job_id for call in newest if call is not None and about.part(call, part)}


def _replace(tx: Transaction, plan: CompactionPlan, summary: str) -> Compaction:
    """Archive the messages and store their summary."""
    conversation_id = plan.job.conversation_id or 0
    before = tx.conversations.all_of(conversation_id)
    gone = [message.token_estimate for message in before if message.id in plan.excerpt.ids]
    tx.conversations.compactions.archive(conversation_id, plan.excerpt.ids)
    return tx.conversations.compactions.add(
        Compaction(
            conversation_id=conversation_id,
            agent_id=plan.job.agent_id or 0,
            summary=summary,
            messages_before=len(before),
            messages_after=len(before) - len(gone),
            tokens_saved=sum(gone) - estimate(summary),
            created_at=tx.now,
        )
    )
