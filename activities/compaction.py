"""Compaction: in a conversation too long for its model, facts and a summary replace the older messages."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from temporalio import activity

from activities.context import ModelRules, memory_scope_key
from maestro.domain.context.history import redact_messages
from maestro.domain.conversations.conversation import (
    INSTRUCTIONS,
    Compaction,
    Excerpt,
    choose_excerpt,
    compaction_prompt,
    excerpt_budget,
    output_limit,
    removable_messages,
)
from maestro.domain.jobs.flow import CompactionOutcome
from maestro.domain.jobs.job import Job, StepRef
from maestro.domain.llm.calls import LLMCall
from maestro.domain.llm.models import estimate_tokens
from maestro.domain.llm.prompts import CallKey, CallPurpose, LLMRequest, StoredRequest
from maestro.domain.media import prompt_text
from maestro.domain.memory.memory import parse_facts
from maestro.domain.precedence import Precedence
from maestro.domain.redaction import Redact
from maestro.llm.protocols import LLMClient
from maestro.store.store import Store
from maestro.store.transaction import Transaction


@dataclass(frozen=True)
class CompactionPlan:
    """The messages to compact and the model to call; ``held`` maps a purpose to the job with a reusable answer."""

    job: Job
    precedence: Precedence
    excerpt: Excerpt
    model: str
    max_output_tokens: int
    held: Mapping[CallPurpose, str]

    def request(self, purpose: CallPurpose) -> LLMRequest:
        """Return the request for the facts or the summary; an answer stored for the same messages is reused."""
        return LLMRequest(
            key=CallKey(job_id=self.held.get(purpose, self.job.id), number=self.excerpt.ids[-1], purpose=purpose),
            platform=self.job.platform,
            model=self.model,
            messages=compaction_prompt(purpose, self.excerpt.text),
            max_output_tokens=self.max_output_tokens,
            precedence=self.precedence,
        )


@dataclass(frozen=True)
class CompactionActivities:
    """Compacts conversations that no longer fit into the context window."""

    store: Store
    llm: LLMClient
    rules: Callable[[], ModelRules]

    @activity.defn
    async def compact_conversation(self, ref: StepRef) -> CompactionOutcome:
        """Store facts from the older messages, and then replace these messages by a summary.

        Facts and model answers are committed before the messages are archived: a failure loses no message, and a retry
        pays for no answer twice.
        """
        plan = await asyncio.to_thread(self._plan_compaction, ref)
        if not plan.excerpt.ids:
            return await asyncio.to_thread(
                self.store.write, lambda tx: tx.jobs.steps.finish_step(ref, CompactionOutcome(compaction_id=0))
            )
        answer = await self.llm.complete(plan.request(CallPurpose.FACTS))
        facts = await asyncio.to_thread(self._store_facts, plan.job, answer.content)
        summary = await self.llm.complete(plan.request(CallPurpose.SUMMARY))
        return await asyncio.to_thread(self._archive_messages, ref, plan, summary.content.strip(), facts)

    def _plan_compaction(self, ref: StepRef) -> CompactionPlan:
        with self.store.view() as tx:
            job = tx.jobs.get(ref.job_id)
            agent = tx.agents.get(job.agent_id)
            tokens = self.rules().window(agent.model or tx.llm.accounts.find_default_model())
            rules = self.rules()
            part = _choose_excerpt(tx, job, excerpt_budget(tokens), rules.redact_prompts)
            newest = (tx.llm.calls.find_newest_answer(job.conversation_id, purpose) for purpose in INSTRUCTIONS)
            answers = [
                call for call in newest if call is not None and is_answer_about(tx, call, part, rules.redact_prompts)
            ]
            return CompactionPlan(
                job=job,
                precedence=tx.jobs.read_precedence(job),
                excerpt=part,
                held={call.purpose: call.job_id for call in answers},
                model=agent.model,
                max_output_tokens=output_limit(tokens, rules.max_output_tokens),
            )

    def _store_facts(self, job: Job, answer: str) -> int:
        # Secrets are removed before a fact is cut, because a cut could leave an unrecognisable half of a secret.
        facts = parse_facts(self.rules().redact(answer))
        with self.store.begin() as tx:
            place = memory_scope_key(tx, job, tx.agents.get(job.agent_id), self.rules().memory_scope)
            tx.memory.learn_facts(job.agent_id or 0, facts, conversation_id=job.conversation_id, memory_scope=place)
        return len(facts)

    def _archive_messages(self, ref: StepRef, plan: CompactionPlan, summary: str, facts: int) -> CompactionOutcome:
        summary = self.rules().redact(summary)
        conversation_id, ids = plan.job.conversation_id or 0, plan.excerpt.ids
        with self.store.begin() as tx:
            before = tx.conversations.list_messages(conversation_id)
            archived_tokens = [message.token_estimate for message in before if message.id in ids]
            tx.conversations.compactions.archive_messages(conversation_id, ids)
            compaction = tx.conversations.compactions.add_compaction(
                Compaction(
                    conversation_id=conversation_id,
                    agent_id=plan.job.agent_id or 0,
                    summary=summary,
                    messages_before=len(before),
                    messages_after=len(before) - len(archived_tokens),
                    tokens_saved=sum(archived_tokens) - estimate_tokens(summary),
                    created_at=tx.now,
                )
            )
            outcome = CompactionOutcome(
                compaction_id=compaction.id or 0, archived=len(ids), facts=facts, tokens_saved=compaction.tokens_saved
            )
            return tx.jobs.steps.finish_step(ref, outcome)


def is_answer_about(tx: Transaction, call: LLMCall, excerpt: Excerpt, redact: Redact) -> bool:
    """Return whether the request of a model call contained exactly this excerpt."""
    if not excerpt.ids or excerpt.ids[-1] != call.number:
        return False
    request = StoredRequest.model_validate_json(tx.llm.prompts.read_text(call.request))
    sent, expected = tx.llm.prompts.restore_messages(request.turns), compaction_prompt(call.purpose, excerpt.text)
    return sent == expected or sent == redact_messages(expected, redact)


def _choose_excerpt(tx: Transaction, job: Job, budget: int, redact: Redact) -> Excerpt:
    """Choose the messages to archive, first those of which an unfinished compaction has stored the facts."""
    answered = frozenset(row.id for row in tx.jobs.merged.list_answered_messages(job))
    removable = removable_messages(tx.conversations.list_messages(job.conversation_id or 0), answered)
    files = tx.inbox.media.list_files_of_messages(
        [message.inbox_id for message in removable if message.inbox_id is not None]
    )
    texts = [(message, prompt_text(message.content, files.get(message.inbox_id or 0, ()))) for message in removable]
    facts = tx.llm.calls.find_newest_answer(job.conversation_id, CallPurpose.FACTS)
    if facts is not None:
        unfinished = choose_excerpt(
            [(message, text) for message, text in texts if (message.id or 0) <= facts.number], budget
        )
        if is_answer_about(tx, facts, unfinished, redact):
            return unfinished
    return choose_excerpt(texts, budget)
