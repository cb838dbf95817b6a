"""Builds the prompt of a job from stored parts: messages, tasks, memory and the agent's persona.

See docs/decisions.md: memory scope, delegation."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from temporalio import activity

from maestro.domain.agent_chat import chat_addendum
from maestro.domain.agents.agent import Agent, MemoryScope, recalls_per_conversation
from maestro.domain.conducting.conductor import outcomes_note
from maestro.domain.context.composition import FACTS, SUMMARIES, Composition, Knowledge, PromptInput, compose_prompt
from maestro.domain.context.history import FRESH, HistoryEntry, quotation_text
from maestro.domain.context.layers import Colleague, Persona, build_persona, speaker_line
from maestro.domain.conversations.conversation import MessageColumns, StoredMessage, conversation_key
from maestro.domain.jobs.delegations import (
    ANSWER_PERSON,
    MAX_DEPTH,
    TaskResult,
    background_text,
    continuation_text,
    results_text,
    task_text,
)
from maestro.domain.jobs.flow import ContextOutcome
from maestro.domain.jobs.job import Job, JobStatus, StepRef, first_model, job_edits
from maestro.domain.jobs.replay import build_what_if_input
from maestro.domain.llm.models import estimate_tokens, estimate_tools, prompt_budget
from maestro.domain.llm.prompts import Role
from maestro.domain.media import add_transcripts
from maestro.domain.messages import InboxRow
from maestro.domain.people.people import Person
from maestro.domain.redaction import Redact, keep_text
from maestro.domain.schedules.expressions import read_zone
from maestro.store.cache import CachedRows
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from maestro.tools.registry import ToolRegistry

EVER = sys.maxsize
"""A message id above all existing ids, for reading a history without an upper limit."""

HISTORY_ROWS = 500

PromptMessages = tuple[tuple[HistoryEntry, ...], tuple[HistoryEntry, ...], str]
"""The messages to answer, oldest first; the history, newest first; and the outcomes of the last answer's tags."""


def build_task_turn(tx: Transaction, job: Job) -> HistoryEntry:
    """Return a job's task as the user turn of its prompt; the task is delegated or belongs to background work.

    See docs/decisions.md: delegation, schedules.
    """
    if job.parent_id is None:
        schedule = tx.background.schedules.find(job.schedule)
        return _user_turn(background_text(job, read_zone(schedule.zone if schedule is not None else "UTC")))
    delegator = tx.jobs.delegations.read_lineage(job)[1]
    user_name = tx.inbox.read(job.inbox_id).user_name if job.inbox_id is not None else ""
    return _user_turn(task_text(tx.agents.read(delegator.agent_id), user_name, job))


def build_earlier_turns(tx: Transaction, job: Job) -> tuple[HistoryEntry, ...]:
    """Return the task and earlier answers of a delegate that continues its task, newest first; else nothing.

    The other messages of the conversation belong to the delegator: a delegate that read them would take another agent's
    words for its own.
    """
    turns: list[HistoryEntry] = []
    for ancestor in tx.jobs.delegations.read_lineage(job)[1:]:
        if ancestor.has_answer:
            turns.append(find_own_answer(tx, ancestor))
        if ancestor.task:
            return (*turns, build_task_turn(tx, ancestor))
        turns.append(build_results_turn(tx, ancestor))
    return ()


def build_results_turn(tx: Transaction, job: Job) -> HistoryEntry:
    """Return the user turn with the results of all tasks for which a delegator has waited."""
    results = [
        TaskResult(
            slug=tx.agents.read(task.agent_id).slug,
            task=task.task,
            answer=find_own_answer(tx, last).content
            if last.status is JobStatus.COMPLETED and last.has_answer
            else None,
            status=last.status,
        )
        for task, last in tx.jobs.delegations.list_results(job.parent_id or "")
    ]
    origin = tx.jobs.delegations.find_background_origin(job)
    return _user_turn(results_text(results, ANSWER_PERSON if origin is None else continuation_text(origin)))


def find_own_answer(tx: Transaction, job: Job) -> HistoryEntry:
    if job.answer_id is None:
        return HistoryEntry(Role.ASSISTANT, job.said, estimate_tokens(job.said))
    message = tx.conversations.read_message(job.answer_id)
    return HistoryEntry(Role.ASSISTANT, message.content, message.token_estimate, message.id)


def _user_turn(text: str) -> HistoryEntry:
    return HistoryEntry(Role.USER, text, estimate_tokens(text))


def memory_scope_key(tx: Transaction, job: Job, agent: Agent, scope: MemoryScope) -> str:
    """Return the key of the conversation to which an agent's memory is limited; empty without such a limit.

    An agent's own setting overrides ``scope``. The key never names the conversation of a delegator.
    """
    if not recalls_per_conversation(agent, scope):
        return ""
    conversation = tx.conversations.read(job.conversation_id) if job.conversation_id is not None else None
    if conversation is not None and conversation.agent_id == job.agent_id:
        return conversation.key
    return conversation_key(job.agent_id or 0, job.address, None)


def read_prompt_input(tx: Transaction, job: Job, rows: Sequence[InboxRow]) -> PromptInput:
    """Return the messages that the job answers, and the history before them."""
    user_name = next((row.user_name for row in rows if row.id == job.inbox_id), "")
    if job.task:
        return PromptInput(turns=(build_task_turn(tx, job),), user_name=user_name)
    own = build_earlier_turns(tx, job) if job.parent_id is not None else ()
    if own:
        return PromptInput(turns=(build_results_turn(tx, job),), earlier=own, user_name=user_name)
    if job.parent_id is None:
        turns, earlier, note = _messages_to_answer(tx, job, rows)
    else:
        result_jobs = {last.id for _, last in tx.jobs.delegations.list_results(job.parent_id or "")}
        newest = tx.conversations.list_newest_messages(job.conversation_id or 0, EVER, HISTORY_ROWS)
        before = [message for message in newest if message.job_id not in result_jobs]
        turns, earlier = (build_results_turn(tx, job),), tuple(history_entries(tx, before, job))
        note = read_last_tag_outcomes(tx, before)
    return PromptInput(
        turns=turns,
        earlier=earlier,
        summaries=tuple(tx.conversations.compactions.list_latest_compactions(job.conversation_id or 0, SUMMARIES)),
        user_name=user_name,
        note=note,
    )


def _messages_to_answer(tx: Transaction, job: Job, rows: Sequence[InboxRow]) -> PromptMessages:
    if job.what_if:
        return _read_what_if_input(tx, job, rows)
    # The model gets all answered messages as one request, so the newest of them ends the history.
    last = tx.conversations.restore_recorded_message(rows[-1].id)
    if last is None:
        return (), (), ""
    ids = {row.id or 0 for row in rows}
    newest_first = _read_history(tx, job, last, ids)
    quotes = read_quoted_texts(tx, job, rows, [message for message in newest_first if message.inbox_id not in ids])
    turns: list[HistoryEntry] = []
    earlier: list[HistoryEntry] = []
    for message, entry in zip(newest_first, history_entries(tx, newest_first, job), strict=True):
        if message.inbox_id in ids:
            quote = quotes.get(message.inbox_id, "")
            turns.append(_apply_edit(job, message.inbox_id, entry._replace(quote=quote) if quote else entry))
        else:
            earlier.append(entry)
    return tuple(reversed(turns)), tuple(earlier), read_last_tag_outcomes(tx, newest_first)


def read_last_tag_outcomes(tx: Transaction, newest_first: Sequence[StoredMessage]) -> str:
    """Return the outcomes of the tags in the agent's last answer; empty if that answer had no tags to report."""
    answers = (message for message in newest_first if message.role is Role.ASSISTANT and message.agent_id is None)
    last = next(answers, None)
    return (
        outcomes_note(tx.jobs.actions.list_actions_of_job(last.job_id))
        if last is not None and last.plain_chars is None
        else ""
    )


def _read_what_if_input(tx: Transaction, job: Job, rows: Sequence[InboxRow]) -> PromptMessages:
    """Return the input of a what-if, without recording a message in a conversation.

    See docs/decisions.md: what-if.
    """
    recorded = {row.id: tx.conversations.find_recorded_message(row.id) for row in rows}
    last = recorded[rows[-1].id]
    if last is not None:
        conversation_id = last.conversation_id
    else:  # Recorded, the message would belong to this conversation; 0 stands for a new conversation.
        binding = tx.agents.read_binding(job.address)
        keyed = binding is not None and binding.key_by_user
        found = tx.conversations.find_conversation(job.agent_id or 0, rows[-1], keyed_by_user=keyed).conversation
        conversation_id = (found.id if found is not None else None) or 0
    newest = tx.conversations.list_newest_messages(
        conversation_id, (last.id if last is not None else None) or EVER, HISTORY_ROWS
    )
    earlier = [message for message in newest if message.inbox_id is None or message.inbox_id not in recorded]
    files = tx.inbox.media.list_files_of_messages([row.id or 0 for row in rows])
    quotes = read_quoted_texts(tx, job, rows, earlier)
    turns: list[HistoryEntry] = []
    for row in rows:
        row_files, message = files.get(row.id or 0, ()), recorded[row.id]
        text = message.content if message is not None else add_transcripts(row.content, row_files)
        message_id = message.id if message is not None else None
        quote = quotes.get(row.id, "")
        entry = HistoryEntry(Role.USER, text, estimate_tokens(text), message_id, tuple(row_files), quote=quote)
        turns.append(_apply_edit(job, row.id, entry))
    return tuple(turns), tuple(history_entries(tx, earlier, job)), read_last_tag_outcomes(tx, earlier)


def read_quoted_texts(
    tx: Transaction, job: Job, rows: Sequence[InboxRow], newest_first: Sequence[StoredMessage]
) -> Mapping[int | None, str]:
    """Return the texts that these messages quote, by the inbox id of the quoting message.

    A quoted message is left out if it is answered by the same job, or is part of the recent history.
    """
    quotes = ((row.id, tx.inbox.quotes.find_quoted(row, job.agent_id)) for row in rows if row.reply_to)
    answered = {row.id for row in rows}
    return {
        row_id: quotation_text(quote)
        for row_id, quote in quotes
        if quote is not None and quote.inbox_id not in answered and not quote.is_one_of(newest_first[:FRESH])
    }


def _apply_edit(job: Job, inbox_id: int | None, entry: HistoryEntry) -> HistoryEntry:
    """Return the message for the model: an operator's edit of the job's own message, else the user's text."""
    prompt = job_edits(job).prompt
    if prompt is None or inbox_id != job.inbox_id:
        return entry
    return HistoryEntry(Role.USER, prompt, estimate_tokens(prompt), files=entry.files)


def _read_history(tx: Transaction, job: Job, last: MessageColumns, answered_ids: set[int]) -> list[StoredMessage]:
    """Return the messages up to ``last``, newest first; shortened texts only if the agent owns the conversation."""
    conversation_id = job.conversation_id or 0
    if find_conversation_owner(tx, job) is not None:
        return tx.conversations.list_newest_messages(conversation_id, last.id or EVER, HISTORY_ROWS)
    return tx.conversations.list_message_outlines(conversation_id, last, HISTORY_ROWS, answered_ids)


def find_conversation_owner(tx: Transaction, job: Job) -> int | None:
    """Return the id of the agent that owns the conversation if an operator chose another agent; else None."""
    if job_edits(job).agent is None or job.conversation_id is None:
        return None
    agent_id = tx.conversations.read(job.conversation_id).agent_id
    return agent_id if agent_id != job.agent_id else None


def history_entries(tx: Transaction, messages: Sequence[StoredMessage], job: Job) -> list[HistoryEntry]:
    """Return the messages as entries of a history, with their files; a message of another agent names its author."""
    with_files = [message.inbox_id for message in messages if message.has_files and message.inbox_id is not None]
    files = tx.inbox.media.list_files_of_messages(with_files)
    owner = find_conversation_owner(tx, job)
    # The author is None for a user's message and for a message of the answering agent.
    authors = [message.agent_id or (owner if message.role is Role.ASSISTANT else None) for message in messages]
    agents = map(tx.agents.read, set(authors) - {None, job.agent_id})
    names = {agent.id: speaker_line(Colleague(agent.slug, agent.name, agent.description)) for agent in agents}
    return [
        HistoryEntry.from_message(message, files.get(message.inbox_id or 0, ()), names.get(author, ""))
        for message, author in zip(messages, authors, strict=True)
    ]


@dataclass(frozen=True)
class ModelRules:
    """Settings of prompts, model calls and compactions; ``window`` returns the context window of a model in tokens.

    ``memory_scope`` applies to agents without a memory scope of their own; ``chat`` says whether #maestro exists. If
    ``scans_answers``, answers are not streamed, because all of an answer is scanned for secrets first. ``redact``
    removes secrets from facts, ``redact_prompts`` from prompts.
    """

    window: Callable[[str], int]
    toolbox: ToolRegistry
    max_output_tokens: int
    memory_scope: MemoryScope = MemoryScope.AGENT
    chat: bool = False
    scans_answers: bool = False
    redact: Redact = keep_text
    redact_prompts: Redact = keep_text


PersonaKey = tuple[int | None, frozenset[str], str | None, int]
"""An agent's id, its tools, the circle of agents that it may give tasks to (or None), and the prompt's token limit."""


class ContextActivities:
    """Builds the prompts for the model."""

    def __init__(self, store: Store, rules: Callable[[], ModelRules]) -> None:
        self._store = store
        self._rules = rules
        self._personas: CachedRows[PersonaKey, Persona] = CachedRows()

    @activity.defn(no_thread_cancel_exception=True)
    def build_context(self, ref: StepRef) -> ContextOutcome:
        """Build and store the prompt of a job; return the prompt's id and size."""
        with self._store.begin(job=ref.job_id) as tx:
            # An optional step that timed out in Temporal may still run here; that step must not write any more.
            tx.jobs.steps.interrupt_others(ref)
            job = tx.jobs.read(ref.job_id)
            # A what-if answers the input of the job that it was made from.
            source = build_what_if_input(job, tx.jobs.read(job.restarted_from or "")) if job.what_if else job
            prompt = self._compose_prompt(tx, source)
            if not job.what_if:
                tx.memory.record_use(prompt.facts)
            prompt_id = tx.llm.prompts.add_prompt(ref.job_id, prompt)
            outcome = ContextOutcome(prompt_id=prompt_id, turns=len(prompt.messages), tokens=prompt.tokens)
            return tx.jobs.steps.finish_step(ref, outcome)

    def _compose_prompt(self, tx: Transaction, job: Job) -> Composition:
        rules, agent = self._rules(), tx.agents.read(job.agent_id)
        specs = rules.toolbox.list_tools(agent)
        tools = frozenset(spec.name for spec in specs)
        window = rules.window(first_model(job, agent.model) or tx.llm.accounts.find_default_model())
        budget = prompt_budget(window) - estimate_tools(specs)
        rows = tx.jobs.merged.list_answered_messages(job)
        prompt_input, scope_key = read_prompt_input(tx, job, rows), memory_scope_key(tx, job, agent, rules.memory_scope)
        knowledge = Knowledge(
            skills=tx.agents.skills.read_index().choose_skills(prompt_input.text, tools, agent.skill_slugs),
            facts=tx.memory.find_best_facts(agent.id or 0, FACTS, scope_key),
            states=tx.memory.read_states(agent.id or 0, scope_key),
            addendum=chat_addendum(agent) if rules.chat else "",
        )
        circle = None
        if job.depth < MAX_DEPTH:  # At the greatest depth no agent is offered, because no task can be delegated.
            sender = next((Person.from_row(row) for row in rows if row.id == job.inbox_id), None)
            circle = tx.agents.colleagues.active_agents().find_circle(sender)
        own = self._cached_persona(tx, agent, (agent.id, tools, circle, budget))
        return compose_prompt(own, prompt_input, knowledge, tx.now.date(), budget)

    def _cached_persona(self, tx: Transaction, agent: Agent, key: PersonaKey) -> Persona:
        """Return the persona of an agent, from the cache if possible, because building one is slow."""

        def build() -> Persona:
            _, tools, circle, budget = key
            colleagues = (
                tx.agents.colleagues.active_agents().list_colleagues(agent.id or 0, circle)
                if circle is not None
                else ()
            )
            return build_persona(agent, tools, colleagues, budget)

        if not tx.system.versions.are_cacheable:
            return build()
        return self._personas.get_or_make(tx.system.versions.read_versions().agents, key, build)
