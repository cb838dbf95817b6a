"""Records the user's message in its conversation, exactly once, and the model's answer after acting on its tags.

The answer of a what-if is only shown (docs/decisions.md: what-if).
"""

import itertools
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from temporalio import activity

from activities.context import ContextActivities
from activities.questions import open_question_error
from activities.routing import RoutingActivities, choose_answerer, require_active
from activities.tags import ActingRules, TagOutcomes, TagRun
from maestro.domain.agents.agent import Agent, paying_client_id
from maestro.domain.conducting.conductor import answer_text
from maestro.domain.conversations.conversation import MessageColumns, is_compaction_due
from maestro.domain.errors import Stopped
from maestro.domain.jobs.delegations import remove_silent_lines
from maestro.domain.jobs.flow import (
    AnswerOutcome,
    AnswerStep,
    ConversationOutcome,
    Preparation,
    PreparationOutcome,
    RouteAction,
    RouteOutcome,
    WhatIfOutcome,
)
from maestro.domain.jobs.job import CHOSEN, Job, JobEnding, JobKind, JobStatus, StepRef, is_background, job_edits
from maestro.domain.jobs.steps import PREPARATION, StepKind
from maestro.domain.llm.calls import LLMCall
from maestro.domain.llm.models import estimate_tokens
from maestro.domain.llm.prompts import CallKey, Role, StoredRequest
from maestro.domain.media import add_transcripts
from maestro.domain.messages import InboxRow
from maestro.domain.precedence import Priority
from maestro.domain.questions.question import Question, QuestionStatus
from maestro.domain.redaction import Redact, keep_text, redact_value
from maestro.domain.tags.actions import is_quotation, needs_report, normalize_texts
from maestro.domain.tags.grammar import ParsedAnswer, Tag, TagName, parse_answer
from maestro.intake.access import AccessControl
from maestro.store.jobs.steps import OwnAttempt
from maestro.store.store import Store
from maestro.store.transaction import Transaction

Result = TypeVar("Result")


@dataclass(frozen=True)
class ConversationActivities:
    """Records the user's messages; ``window`` returns the context window of a model in tokens."""

    store: Store
    window: Callable[[str], int]

    @activity.defn(no_thread_cancel_exception=True)
    def record_message(self, ref: StepRef) -> ConversationOutcome:
        """Record the message by its inbox id, so that a restarted job finds it instead of adding it again."""
        with self.store.begin(job=ref.job_id) as tx:
            job = tx.jobs.read(ref.job_id)
            agent = tx.agents.read(job.agent_id)
            for row in tx.jobs.merged.list_answered_messages(job):  # oldest first
                message = tx.conversations.restore_recorded_message(row.id) or _record_message(tx, job, agent, row)
            tx.jobs.update_later(job.id, conversation_id=message.conversation_id)
            tokens = self.window(agent.model or tx.llm.accounts.find_default_model())
            outcome = ConversationOutcome(
                conversation_id=message.conversation_id,
                message_id=message.id or 0,
                compaction_due=is_compaction_due(tx.conversations.read(message.conversation_id), tokens),
            )
            return tx.jobs.steps.finish_step(ref, outcome)


def _record_message(tx: Transaction, job: Job, agent: Agent, row: InboxRow) -> MessageColumns:
    binding = tx.agents.read_binding(job.address)
    keyed = binding is not None and binding.key_by_user
    conversation = tx.conversations.find_or_begin(agent.id or 0, row, keyed_by_user=keyed)
    has_files, content = bool(row.files()), row.content
    if has_files:
        # A voice message without a transcript is only mentioned in the prompt, and never transcribed later.
        for voice in tx.inbox.media.list_untranscribed_files([row.id or 0]):
            tx.inbox.media.set_transcript(voice.id, "")
        content = add_transcripts(content, tx.inbox.media.list_files_of_messages([row.id or 0]).get(row.id or 0, ()))
    return tx.conversations.add_message(
        MessageColumns(
            conversation_id=conversation.id or 0,
            role=Role.USER,
            content=content,
            token_estimate=estimate_tokens(content),
            inbox_id=row.id,
            job_id=job.id,
            has_files=has_files,
            created_at=tx.now,
        )
    )


class GroupJournal(Protocol):
    """The journal of steps, as activities that do several steps use it."""

    def run_together(self, job_id: str, work: Callable[[], Result]) -> Result:
        """Run ``work``, several steps that only write to the store, in one transaction; return its result."""
        ...

    def run_store_step(self, function: Callable[[Any], Any], ref: StepRef) -> Any:
        """Run a step that only writes to the store; return its result, or the stored one of a finished step."""
        ...

    def journal_attempt(
        self, ref: StepRef, name: str, begin: OwnAttempt | Callable[[], str | OwnAttempt]
    ) -> AbstractAsyncContextManager[str | None]:
        """Journal the block as an attempt; ``begin`` is the attempt, or a function that begins it in a thread."""
        ...

    def begin_attempt(self, ref: StepRef, name: str, *, recorded: bool = True) -> str | OwnAttempt:
        """Begin an attempt at a step and return it; for a finished step, return the stored result instead."""
        ...

    def record_next_attempt(self, ref: StepRef, name: str) -> None:
        """Record in the open transaction the attempt that the next activity makes."""
        ...

    def adopt_recorded_attempt(self, tx: Transaction, ref: StepRef) -> OwnAttempt | None:
        """Return the attempt that ``record_next_attempt`` recorded; None without one."""
        ...


@dataclass(frozen=True)
class PreparationActivities:
    """Does the steps before the model call: routes a message, records it and builds its prompt."""

    journal: GroupJournal
    routing: RoutingActivities
    conversations: ConversationActivities
    context: ContextActivities

    @activity.defn(no_thread_cancel_exception=True)
    def prepare(self, start: Preparation) -> PreparationOutcome:
        """Do the preparation steps from ``start`` on, up to one that needs another activity, such as fetching files."""
        return self.journal.run_together(start.job_id, partial(self._do_steps, start))

    def _do_steps(self, start: Preparation) -> PreparationOutcome:
        steps: dict[StepKind, Callable[[StepRef], Any]] = {
            StepKind.ROUTE: self.routing.choose_agent,
            StepKind.CONVERSATION: self.conversations.record_message,
            StepKind.CONTEXT: self.context.build_context,
        }
        outcomes: dict[str, Any] = {}
        milliseconds = []
        for kind in itertools.dropwhile(lambda kind: kind != start.step, PREPARATION):
            began = time.monotonic()
            outcomes[kind] = self.journal.run_store_step(steps[kind], StepRef(job_id=start.job_id, step=kind))
            milliseconds.append(round((time.monotonic() - began) * 1000))
            if kind is not StepKind.CONTEXT and not outcomes[kind].continues_preparation:
                break
        else:
            if start.asks:
                self.journal.record_next_attempt(
                    StepRef(job_id=start.job_id, step=StepKind.MODEL.numbered_step(1)), "call_model"
                )
        return PreparationOutcome(**outcomes, milliseconds=tuple(milliseconds))


@dataclass(frozen=True)
class TagActivities:
    """Acts on the model's final answer, and on nothing else (docs/invariants.md: only the final answer acts).

    ``on_question`` is called when a question is ready to be sent.
    """

    store: Store
    rules: Callable[[], ActingRules]
    on_question: Callable[[], None]

    @activity.defn(no_thread_cancel_exception=True)
    def record_answer(self, step: AnswerStep) -> AnswerOutcome:
        """Act on the tags, and record the answer without its tags as the assistant's message.

        This completes a job whose answer goes to a delegating agent, because that answer is not sent. Raises
        ``WaitsForPerson`` while the answer's directives wait for an approval.
        """
        rules = self.rules()
        with self.store.view() as tx:
            answer = get_final_answer(tx, step)
        # A scan for secrets may take long, so no transaction is open during it.
        answer = replace(answer, tags=tuple(redact_tag(tag, rules.redact) for tag in answer.tags))
        with self.store.begin(job=step.job_id) as tx:
            outcome = _act_and_record(tx, step, answer, rules)
            if isinstance(outcome, Question):
                tx.call_after_commit(self.on_question)
        if isinstance(outcome, Question):
            raise open_question_error(outcome)
        return outcome

    def needs_secret_scan(self, content: str) -> bool:
        """Return whether an answer's tags have to be scanned for secrets, outside of a transaction."""
        return self.rules().redact is not keep_text and bool(parse_answer(content).tags)


def _act_and_record(
    tx: Transaction, step: AnswerStep, answer: ParsedAnswer, rules: ActingRules
) -> AnswerOutcome | Question:
    """Act on the answer's tags and record the answer; return the question instead if an approval is needed first."""
    job = tx.jobs.read(step.job_id)
    if job.stop_requested:  # After a stop during this step, the tags of the answer must not act.
        raise Stopped(f"a person stopped job {job.id}")
    outcomes = TagOutcomes()
    if answer.tags:
        run = TagRun(tx, job, rules)
        question = run.ask_approval(step, answer.tags)
        if question is not None and question.status is QuestionStatus.OPEN:
            return question
        outcomes = run.act_on_all(answer.tags)
    heard = job.parent_id is not None and tx.jobs.delegations.find_delegator(job) is not None
    may_be_unasked = job.parent_id is not None or is_background(job)
    unasked = may_be_unasked and tx.jobs.delegations.find_background_origin(job) is not None
    news = any(needs_report(outcome.state, outcome.detail) for _, outcome in outcomes.outcomes)
    message_id = _record_answer(
        tx, job, compose_text_to_send(answer.visible, outcomes, proactive=unasked), is_proactive=news
    )
    if heard or message_id is None:
        tx.jobs.close_job(job.id, JobEnding(status=JobStatus.COMPLETED))
    tasks = [task_job for _, task_job in outcomes.tasks]
    outcome = AnswerOutcome(
        message_id=message_id or 0,
        silent=message_id is None,
        heard=heard,
        # Background tasks are left to the dispatcher, which limits how many run at once.
        begun=tuple(task.id for task in tasks if task.priority <= Priority.MESSAGE),
        priority=max((task.priority for task in tasks), default=Priority.DELEGATION),
    )
    return tx.jobs.steps.finish_step(step, outcome)


def redact_tag(tag: Tag, redact: Redact) -> Tag:
    """Return a tag without secrets in the text that it stores in memory (docs/decisions.md: redaction)."""
    if tag.name is TagName.MEMORY:
        return replace(tag, body=redact(tag.body))
    return replace(tag, body=redact_value(redact, tag.key, tag.body)) if tag.name is TagName.STATE else tag


def compose_text_to_send(visible: str, outcomes: TagOutcomes, *, proactive: bool) -> str:
    """Return the text to send; empty if the answer has no text and no user waits for it.

    A user who asked gets at least a short text. A heartbeat, and each task that it delegates, answers no user.
    """
    text = remove_silent_lines(visible) if proactive else visible
    if text and not outcomes.reports:
        return text
    silent = proactive and not (text or outcomes.reports or outcomes.tasks)
    return "" if silent else answer_text(text, outcomes.reports, [task for task, _ in outcomes.tasks])


def _record_answer(tx: Transaction, job: Job, text: str, *, is_proactive: bool) -> int | None:
    """Record the agent's message and return its id; without a conversation return 0, or None for an empty text.

    After a restart, the answers of the earlier jobs and of their tasks are marked as superseded. If ``is_proactive``,
    the next prompt contains the outcomes of the tags.
    """
    if job.conversation_id is None:
        tx.jobs.update_open(job.id, said=text)
        return 0 if text else None
    if job.restarted_from:
        earlier = tx.jobs.list_ancestor_ids(job)
        tx.conversations.mark_superseded(
            [*earlier, *(task.id for task in tx.jobs.delegations.list_descendants(earlier))]
        )
    # An agent answers in another agent's conversation only for a task, or where an operator chose that agent.
    may_be_guest = job.parent_id is not None or bool(job.edits)
    is_guest = may_be_guest and tx.conversations.read(job.conversation_id).agent_id != job.agent_id
    message = tx.conversations.add_message(
        MessageColumns(
            conversation_id=job.conversation_id,
            role=Role.ASSISTANT,
            content=text,
            token_estimate=estimate_tokens(text),
            job_id=job.id,
            agent_id=job.agent_id if is_guest else None,
            created_at=tx.now,
        ),
        is_plain=not is_proactive,
    )
    tx.jobs.update_open(job.id, answer_id=message.id)
    return message.id


def get_final_answer(tx: Transaction, step: AnswerStep) -> ParsedAnswer:
    """Return a job's final answer; a directive that repeats text from the model's input is marked as ``quoted``."""
    call = tx.llm.calls.get_answer(CallKey(job_id=step.job_id, number=step.number))
    answer = parse_answer(call.content)
    if not answer.tags:  # Most answers have no tags that could be compared with the input.
        return answer
    sources = normalize_texts(list_input_texts(tx, tx.jobs.get(step.job_id), call))
    return parse_answer(call.content, lambda tag: is_quotation(tag, sources))


def list_input_texts(tx: Transaction, job: Job, call: LLMCall) -> Iterator[str]:
    """Yield the texts of the model's input that neither the agent itself nor an operator wrote.

    These are the answered message with its files and quotes, earlier messages of other users, the posts of #maestro, a
    webhook's payload, tasks and their results. Tool results are complete, even if the request contains only a part.
    Earlier messages of the asking user are left out: a user who quotes a directive and then writes "do it" adopts the
    directive.
    """
    request = StoredRequest.model_validate_json(tx.llm.prompts.read_text(call.request))
    turns = [turn for turn in request.turns if turn.role is Role.USER]
    if tx.background.runs.uses_schedule_prompt(job):
        turns = [turn for turn in turns if turn.chat]
    own = list_earlier_ids_of_sender(tx, job, [turn.message_id for turn in turns if turn.message_id is not None])
    yield from (
        turn.content for turn in tx.llm.prompts.restore_messages([turn for turn in turns if turn.message_id not in own])
    )
    yield from (
        tx.llm.prompts.read_text(run.result) for run in tx.jobs.tool_runs.list_tool_runs_of_job(job.id) if run.result
    )


def list_earlier_ids_of_sender(tx: Transaction, job: Job, message_ids: Collection[int]) -> Collection[int]:
    """Return the ids of those messages that the asking user wrote before the answered messages."""
    senders = {row.id: row.user_id for row in tx.jobs.merged.list_answered_messages(job)}
    if job.inbox_id not in senders:
        return ()
    written = tx.conversations.filter_by_author(senders[job.inbox_id], message_ids)
    return {message_id for message_id, inbox_id in written.items() if inbox_id not in senders}


@dataclass(frozen=True)
class WhatIfActivities:
    """The first and the last step of a what-if, an answer that is only shown."""

    store: Store
    access: Callable[[], AccessControl]

    @activity.defn(no_thread_cancel_exception=True)
    def choose_for_show(self, ref: StepRef) -> RouteOutcome:
        """Return the agent that would answer the job; without one, the what-if is closed as dropped."""
        with self.store.begin() as tx:
            job = tx.jobs.read(ref.job_id)
            outcome = self._route_message(tx, job) if job.kind is JobKind.MESSAGE else route_to_chosen_agent(tx, job)
            if outcome.action is RouteAction.DROP:
                tx.jobs.close_job(job.id, JobEnding(status=JobStatus.DROPPED, reason=outcome.reason))
            return tx.jobs.steps.finish_step(ref, outcome)

    def _route_message(self, tx: Transaction, job: Job) -> RouteOutcome:
        message = tx.inbox.read(job.inbox_id).message()
        binding = tx.agents.read_binding(message.address)
        agent, reason = choose_answerer(tx, self.access(), message, binding, job_edits(job).agent)
        if agent is None:
            return RouteOutcome(action=RouteAction.DROP, reason=reason)
        payer = paying_client_id(agent, binding)
        tx.jobs.update_job(job.id, agent_id=agent.id, client_id=payer)
        precedence = tx.jobs.compute_precedence(job.priority, payer, message.address)
        return RouteOutcome(action=RouteAction.ANSWER, agent=agent.slug, reason=reason, precedence=precedence)

    @activity.defn(no_thread_cancel_exception=True)
    def show_answer(self, step: AnswerStep) -> WhatIfOutcome:
        """Store the text of the answer and close the what-if; the tags of the answer have no effect."""
        with self.store.begin() as tx:
            job = tx.jobs.get(step.job_id)
            answer = get_final_answer(tx, step)
            tx.jobs.update_job(
                job.id, said=remove_silent_lines(answer.visible) if is_background(job) else answer.visible
            )
            tx.jobs.close_job(job.id, JobEnding(status=JobStatus.COMPLETED))
            return tx.jobs.steps.finish_step(step, WhatIfOutcome(tags=len(answer.tags)))


def route_to_chosen_agent(tx: Transaction, job: Job) -> RouteOutcome:
    agent = tx.agents.read(job.agent_id)
    require_active(agent)
    reason = CHOSEN if job_edits(job).agent is not None else "the agent was named when the job was created"
    precedence = tx.jobs.read_precedence(job)
    return RouteOutcome(action=RouteAction.ANSWER, agent=agent.slug, reason=reason, precedence=precedence)
