"""Adds to a conversation: the user's message, exactly once, and the answer with the effects of its tags."""

import itertools
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from temporalio import activity

from activities.context import ContextActivities
from activities.questions import wait_for_person
from activities.routing import RoutingActivities
from activities.tags import ActingRules, TagOutcomes, TagRun
from maestro.domain.agents.agent import Agent
from maestro.domain.conducting.conductor import answer_text
from maestro.domain.conversations.conversation import MessageColumns, is_compaction_due
from maestro.domain.errors import Stopped
from maestro.domain.jobs.background import worth_posting
from maestro.domain.jobs.flow import AnswerOutcome, AnswerStep, ConversationOutcome, Preparation, PreparationOutcome
from maestro.domain.jobs.job import Job, JobEnding, JobStatus, StepRef, is_background
from maestro.domain.jobs.steps import PREPARATION, StepKind
from maestro.domain.llm.calls import LLMCall
from maestro.domain.llm.models import estimate
from maestro.domain.llm.prompts import CallKey, Role, StoredRequest
from maestro.domain.media import spoken_text
from maestro.domain.messages import InboxRow
from maestro.domain.precedence import Priority
from maestro.domain.questions.question import Question, QuestionStatus
from maestro.domain.redaction import Redact, keep_text, redact_value
from maestro.domain.tags.grammar import ParsedAnswer, Tag, TagName, parse_answer
from maestro.domain.tags.provenance import is_quotation, squeezed
from maestro.store.store import Store
from maestro.store.transaction import Transaction

Result = TypeVar("Result")


class ConversationActivities:
    """Records the user's messages; ``window`` returns the context window of a model in tokens."""

    def __init__(self, store: Store, window: Callable[[str], int]) -> None:
        self._store = store
        self._window = window

    @activity.defn(no_thread_cancel_exception=True)
    def record_message(self, ref: StepRef) -> ConversationOutcome:
        """Record the message by its inbox id, so that a restarted job finds it instead of adding it again."""
        with self._store.begin() as tx:
            job = tx.jobs.read(ref.job_id)
            agent = tx.agents.read(job.agent_id)
            # All answered messages, in order; a message that an earlier job recorded is not added again.
            said = [
                tx.conversations.recall(row.id) or _record_message(tx, job, agent, row)
                for row in tx.jobs.merged.answered_messages(job)
            ]
            message = said[-1]
            tx.jobs.note(job.id, conversation_id=message.conversation_id)
            tokens = self._window(agent.model or tx.llm.accounts.default_model())
            return tx.jobs.steps.done(
                ref,
                ConversationOutcome(
                    conversation_id=message.conversation_id,
                    message_id=message.id or 0,
                    compaction_due=is_compaction_due(tx.conversations.read(message.conversation_id), tokens),
                ),
            )


def _record_message(tx: Transaction, job: Job, agent: Agent, row: InboxRow) -> MessageColumns:
    binding = tx.agents.read_binding(job.address)
    keyed = binding is not None and binding.key_by_user
    conversation = tx.conversations.of_message(agent.id or 0, row, keyed_by_user=keyed)
    return tx.conversations.add(_message(row, job, conversation.id or 0, tx))


def _content(row: InboxRow, tx: Transaction) -> str:
    """Return the user's text and transcripts; a voice message without transcript is only mentioned, also later."""
    if not row.files():
        return row.content
    for voice in tx.inbox.media.untranscribed([row.id or 0]):
        tx.inbox.media.set_transcript(voice.id, "")
    return spoken_text(row.content, tx.inbox.media.of([row.id or 0]).get(row.id or 0, ()))


def _message(row: InboxRow, job: Job, conversation_id: int, tx: Transaction) -> MessageColumns:
    content = _content(row, tx)
    return MessageColumns(
        conversation_id=conversation_id,
        role=Role.USER,
        content=content,
        token_estimate=estimate(content),
        inbox_id=row.id,
        job_id=job.id,
        has_files=bool(row.files()),
        created_at=tx.now,
    )


class PreparationJournal(Protocol):
    """Journals the steps before the model call."""

    def together(self, job_id: str, work: Callable[[], Result]) -> Result:
        """Run steps that only write to the store in one transaction, and return the result of the work."""
        ...

    def run(self, function: Callable[[Any], Any], ref: StepRef) -> Any:
        """Return the result of a step that only writes to the store, or its stored result when it finished before."""
        ...

    def begin_ahead(self, ref: StepRef, name: str) -> None:
        """Record the attempt at a step that acts outside, which the next activity makes."""
        ...


class PreparationActivities:
    """Does the steps before the model call: routes a message, records it and builds its prompt."""

    def __init__(
        self,
        journal: PreparationJournal,
        routing: RoutingActivities,
        conversations: ConversationActivities,
        context: ContextActivities,
    ) -> None:
        self._journal = journal
        self._steps: dict[StepKind, Callable[[StepRef], Any]] = {
            StepKind.ROUTE: routing.choose_agent,
            StepKind.CONVERSATION: conversations.record_message,
            StepKind.CONTEXT: context.build_context,
        }

    @activity.defn(no_thread_cancel_exception=True)
    def prepare(self, start: Preparation) -> PreparationOutcome:
        """Do the steps from the given one on, until a step has to wait for another activity, such as fetching files."""
        return self._journal.together(start.job_id, partial(self._prepared, start))

    def _prepared(self, start: Preparation) -> PreparationOutcome:
        done: dict[str, Any] = {}
        took = []
        for name in itertools.dropwhile(lambda kind: kind != start.step, PREPARATION):
            began = time.monotonic()
            done[name] = self._journal.run(self._steps[name], StepRef(job_id=start.job_id, step=name))
            took.append(round((time.monotonic() - began) * 1000))
            if name is not StepKind.CONTEXT and not done[name].goes_on:
                return PreparationOutcome(**done, milliseconds=tuple(took))
        if start.asks:
            self._journal.begin_ahead(StepRef(job_id=start.job_id, step=StepKind.MODEL.numbered(1)), "call_model")
        return PreparationOutcome(**done, milliseconds=tuple(took))


class TagActivities:
    """Acts on the model's final answer, and on nothing else (docs/invariants.md: only the final answer acts)."""

    def __init__(self, store: Store, rules: Callable[[], ActingRules], asked: Callable[[], None]) -> None:
        """``asked`` is called when a question is ready to be sent."""
        self._store = store
        self._rules = rules
        self._asked = asked

    @activity.defn(no_thread_cancel_exception=True)
    def record_answer(self, step: AnswerStep) -> AnswerOutcome:
        """Act on the tags, and record the answer without its tags as the assistant's message.

        An answer for a delegating agent is not sent, so that recording it completes the job. Raises ``WaitsForPerson``
        while the approval of its directives is open.
        """
        rules = self._rules()
        answer = self._answer(step, rules.redact)
        with self._store.begin() as tx:
            outcome = _act_and_record(tx, step, answer, rules)
            if isinstance(outcome, Question):
                tx.when_committed(self._asked)
        if isinstance(outcome, Question):
            raise wait_for_person(outcome)
        return outcome

    def takes_long(self, content: str) -> bool:
        """Return whether an answer's tags have to be scanned for secrets, outside of a transaction."""
        return self._rules().redact is not keep_text and bool(parse_answer(content).tags)

    def _answer(self, step: AnswerStep, redact: Redact) -> ParsedAnswer:
        """Parse the answer and remove secrets from its tags, outside of a transaction because a scan may take long."""
        with self._store.view() as tx:
            answer = final_answer(tx, step)
        return replace(answer, tags=tuple(_without_secrets(tag, redact) for tag in answer.tags))


def _act_and_record(
    tx: Transaction, step: AnswerStep, answer: ParsedAnswer, rules: ActingRules
) -> AnswerOutcome | Question:
    """Act on the answer's tags and record the answer; return the question instead if an approval is needed first."""
    job = tx.jobs.read(step.job_id)
    if job.stop_requested:  # stopped after the step began: the tags of a stopped answer must not act
        raise Stopped(f"a person stopped job {job.id}")
    acted = TagOutcomes()
    if answer.tags:
        acting = TagRun(tx, job, rules)
        question = acting.approval(step, answer.tags)
        if question is not None and question.status is QuestionStatus.OPEN:
            return question
        acted = acting.on(answer.tags)
    heard = job.parent_id is not None and tx.jobs.delegations.delegator(job) is not None
    unasked = (job.parent_id is not None or is_background(job)) and tx.jobs.delegations.background_origin(
        job
    ) is not None
    news = bool(answer.tags) and acted.has_news
    outcome = _outcome(acted, _record_answer(tx, job, _text(answer.visible, acted, unasked=unasked), news=news))
    if heard or outcome.silent:
        tx.jobs.close(job.id, JobEnding(status=JobStatus.COMPLETED))
    return tx.jobs.steps.done(step, outcome.model_copy(update={"heard": heard}))


def _without_secrets(tag: Tag, redact: Redact) -> Tag:
    """Return a tag without secrets in the text that it stores in memory (docs/decisions.md: redaction)."""
    if tag.name is TagName.MEMORY:
        return replace(tag, body=redact(tag.body))
    return replace(tag, body=redact_value(redact, tag.key, tag.body)) if tag.name is TagName.STATE else tag


def _text(visible: str, acted: TagOutcomes, *, unasked: bool) -> str:
    """Return the text to send; empty if the answer has none and no user waits.

    A user who asked gets at least a short text. A heartbeat, and each task that it delegates, answers no user.
    """
    words = worth_posting(visible) if unasked else visible
    if words and not acted.told:
        return words
    silent = unasked and not (words or acted.told or acted.tasks)
    return "" if silent else answer_text(words, acted.told, [task for task, _ in acted.tasks])


def _outcome(acted: TagOutcomes, recorded: int | None) -> AnswerOutcome:
    jobs = [job for _, job in acted.tasks]
    return AnswerOutcome(
        message_id=recorded or 0,
        silent=recorded is None,
        # Background tasks are left to the dispatcher, which limits how many run at once.
        begun=tuple(job.id for job in jobs if job.priority <= Priority.MESSAGE),
        priority=max((job.priority for job in jobs), default=Priority.DELEGATION),
    )


def _record_answer(tx: Transaction, job: Job, text: str, *, news: bool) -> int | None:
    """Record the agent's message and return its id: 0 without a conversation, None without a text.

    Answers of the jobs that this one restarts, and of their tasks, are marked as superseded. With ``news`` the next
    prompt contains the outcomes of the tags.
    """
    if job.conversation_id is None:
        tx.jobs.update_open(job.id, said=text)
        return 0 if text else None
    if job.restarted_from:
        earlier = tx.jobs.ancestors(job)
        tx.conversations.supersede([*earlier, *(other.id for other in tx.jobs.delegations.below(earlier))])
    # An agent answers in another agent's conversation only for a task, or where an operator chose that agent.
    chosen = job.parent_id is not None or bool(job.edits)
    of_another = chosen and tx.conversations.read(job.conversation_id).agent_id != job.agent_id
    message = tx.conversations.add(
        MessageColumns(
            conversation_id=job.conversation_id or 0,
            role=Role.ASSISTANT,
            content=text,
            token_estimate=estimate(text),
            job_id=job.id,
            agent_id=job.agent_id if of_another else None,
            created_at=tx.now,
        ),
        is_plain=not news,
    )
    tx.jobs.update_open(job.id, answer_id=message.id)
    return message.id


def final_answer(tx: Transaction, step: AnswerStep) -> ParsedAnswer:
    """Return a job's final answer; a directive that repeats text from the model's input is marked as ``quoted``."""
    call = tx.llm.calls.answer(CallKey(job_id=step.job_id, number=step.number))
    answer = parse_answer(call.content)
    if not answer.tags:  # most answers have no tags to compare with the input
        return answer
    sources = squeezed(_sources(tx, tx.jobs.get(step.job_id), call))
    return parse_answer(call.content, lambda tag: is_quotation(tag, sources))


def _sources(tx: Transaction, job: Job, call: LLMCall) -> Iterator[str]:
    """Yield the texts of the model's input that neither the agent itself nor an operator wrote.

    These are the answered message with its files and quotes, earlier messages of other users, the posts of #maestro, a
    payload, tasks and their results, and complete tool results, even where the request contains only a part. Earlier
    messages of the asking user are left out: a user who quotes a directive and then writes "do it" adopts the
    directive.
    """
    turns = StoredRequest.model_validate_json(tx.llm.prompts.text(call.request)).turns
    told = [turn for turn in turns if turn.role is Role.USER]
    if tx.background.runs.is_instructed(job):
        told = [turn for turn in told if turn.chat]
    own = _earlier_of_sender(tx, job, [turn.message_id for turn in told if turn.message_id is not None])
    yield from (turn.content for turn in tx.llm.prompts.unpack([turn for turn in told if turn.message_id not in own]))
    yield from (tx.llm.prompts.text(run.result) for run in tx.jobs.tool_runs.of(job.id) if run.result)


def _earlier_of_sender(tx: Transaction, job: Job, message_ids: Collection[int]) -> Collection[int]:
    """Return which of these messages the asking user wrote before the answered ones."""
    asked = {row.id: row.user_id for row in tx.jobs.merged.answered_messages(job)}
    if job.inbox_id not in asked:
        return ()
    written = tx.conversations.written_by(asked[job.inbox_id], message_ids)
    return {message_id for message_id, inbox_id in written.items() if inbox_id not in asked}
