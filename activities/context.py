"""Builds the prompt of a message from stored parts.

See docs/decisions.md: memory scope.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from temporalio import activity

from activities.delegation import EVER, earlier_turns, messages_before, results_turn, task_turn
from maestro.domain.agent_chat import addendum
from maestro.domain.agents.agent import Agent, MemoryScope, recalls_per_conversation
from maestro.domain.conducting.conductor import outcomes_note
from maestro.domain.context.composition import FACTS, SUMMARIES, Composition, Knowledge, PromptInput, compose
from maestro.domain.context.history import FRESH, HistoryEntry, quotation_text
from maestro.domain.context.layers import Colleague, Persona, persona, speaker_line
from maestro.domain.conversations.conversation import MessageColumns, StoredMessage, conversation_key
from maestro.domain.jobs.delegations import MAX_DEPTH
from maestro.domain.jobs.flow import ContextOutcome
from maestro.domain.jobs.job import Job, StepRef, edits_of, model_for
from maestro.domain.jobs.replay import what_if_input
from maestro.domain.llm.models import estimate, estimate_tools, prompt_budget
from maestro.domain.llm.prompts import Role, ToolSpec
from maestro.domain.media import spoken_text
from maestro.domain.messages import InboxRow
from maestro.domain.people.permissions import Person
from maestro.store.cache import CachedRows
from maestro.store.store import Store
from maestro.store.transaction import Transaction

HISTORY_ROWS = 500

PromptMessages = tuple[tuple[HistoryEntry, ...], tuple[HistoryEntry, ...], str]
"""The messages to answer, oldest first; the history, newest first; and the outcomes of the last tags."""


def memory_scope_of_job(tx: Transaction, job: Job, scope: MemoryScope) -> str:
    """Return the memory scope key of a job, empty for all conversations; an agent's own scope overrides ``scope``."""
    return memory_scope_of(tx, job, tx.agents.get(job.agent_id), scope)


def memory_scope_of(tx: Transaction, job: Job, agent: Agent, scope: MemoryScope) -> str:
    """Return the memory scope key of a job whose agent was already read; empty for all conversations."""
    return _own_key(tx, job) if recalls_per_conversation(agent, scope) else ""


def _own_key(tx: Transaction, job: Job) -> str:
    """Return the key of the agent's own conversation in the channel, even if the job is part of a delegator's."""
    conversation = tx.conversations.read(job.conversation_id) if job.conversation_id is not None else None
    if conversation is not None and conversation.agent_id == job.agent_id:
        return conversation.key
    return conversation_key(job.agent_id or 0, job.address, None)


def input_job(tx: Transaction, job: Job) -> Job:
    """Return the job whose input is answered: the original job for a what-if, else the job itself."""
    return what_if_input(job, tx.jobs.read(job.restarted_from or "")) if job.what_if else job


def read_prompt_input(tx: Transaction, job: Job, asked: Sequence[InboxRow]) -> PromptInput:
    """Return the messages that the job answers, and the history before them."""
    user_name = next((row.user_name for row in asked if row.id == job.inbox_id), "")
    if job.task:
        return PromptInput(turns=(task_turn(tx, job),), user_name=user_name)
    own = earlier_turns(tx, job) if job.parent_id is not None else ()
    if own:
        return PromptInput(turns=(results_turn(tx, job),), earlier=own, user_name=user_name)
    turns, earlier, note = _messages_to_answer(tx, job, asked) if job.parent_id is None else _read_task_results(tx, job)
    return PromptInput(
        turns=turns,
        earlier=earlier,
        summaries=tuple(tx.conversations.compactions.latest(job.conversation_id or 0, SUMMARIES)),
        user_name=user_name,
        note=note,
    )


def _messages_to_answer(tx: Transaction, job: Job, asked: Sequence[InboxRow]) -> PromptMessages:
    """Return the messages that a job answers, and the history before them."""
    if job.what_if:
        return _read_what_if_input(tx, job, asked)
    # Merged messages are one request to the model; the newest of them ends the history.
    last = tx.conversations.recall(asked[-1].id)
    if last is None:
        return (), (), ""
    ids = {row.id or 0 for row in asked}
    newest_first = _read_history(tx, job, last, ids)
    quotes = _quotes(tx, job, asked, [line for line in newest_first if line.inbox_id not in ids])
    turns: list[HistoryEntry] = []
    earlier: list[HistoryEntry] = []
    for line, utterance in zip(newest_first, _as_turns(tx, newest_first, job), strict=True):
        if line.inbox_id in ids:
            quote = quotes.get(line.inbox_id, "")
            turns.append(_with_edit(job, line.inbox_id, utterance._replace(quote=quote) if quote else utterance))
        else:
            earlier.append(utterance)
    return tuple(reversed(turns)), tuple(earlier), _last_outcomes(tx, newest_first)


def _last_outcomes(tx: Transaction, newest_first: Sequence[StoredMessage]) -> str:
    """Return the outcomes of the tags in the agent's last answer; empty if that answer had no tags to report."""
    own = (line for line in newest_first if line.role is Role.ASSISTANT and line.agent_id is None)
    last = next(own, None)
    return outcomes_note(tx.jobs.actions.of(last.job_id)) if last is not None and last.plain_chars is None else ""


def _read_what_if_input(tx: Transaction, job: Job, asked: Sequence[InboxRow]) -> PromptMessages:
    """Return what a what-if answers, and the history before it, without recording any message.

    Messages that were never recorded stay so. See docs/decisions.md: what-if.
    """
    recorded = {row.id: tx.conversations.recorded(row.id) for row in asked}
    last = recorded[asked[-1].id]
    found = last.conversation_id if last is not None else _conversation(tx, job, asked[-1])
    newest = tx.conversations.newest(found, (last.id if last is not None else None) or EVER, HISTORY_ROWS)
    earlier = [line for line in newest if line.inbox_id is None or line.inbox_id not in recorded]
    files = tx.inbox.media.of([row.id or 0 for row in asked])
    quotes = _quotes(tx, job, asked, earlier)
    turns: list[HistoryEntry] = []
    for row in asked:
        own, message = files.get(row.id or 0, ()), recorded[row.id]
        text = message.content if message is not None else spoken_text(row.content, own)
        number = message.id if message is not None else None
        said = HistoryEntry(Role.USER, text, estimate(text), number, tuple(own), quote=quotes.get(row.id, ""))
        turns.append(_with_edit(job, row.id, said))
    return tuple(turns), tuple(_as_turns(tx, earlier, job)), _last_outcomes(tx, earlier)


def _quotes(
    tx: Transaction, job: Job, asked: Sequence[InboxRow], newest_first: Sequence[StoredMessage]
) -> Mapping[int | None, str]:
    """Return, by the id of the reply, the texts that these messages quote.

    A quote that the model sees anyway is left out: a message of the same turn, or one in the recent history.
    """
    found = ((row.id, tx.inbox.quotes.of(row, job.agent_id)) for row in asked if row.reply_to)
    at_hand = {row.id for row in asked}
    return {
        number: quotation_text(quote)
        for number, quote in found
        if quote is not None and quote.inbox_id not in at_hand and not quote.is_one_of(newest_first[:FRESH])
    }


def _conversation(tx: Transaction, job: Job, row: InboxRow) -> int:
    """Return the id of the conversation that an unrecorded message would belong to, 0 for a new one."""
    binding = tx.agents.read_binding(job.address)
    keyed = binding is not None and binding.key_by_user
    found = tx.conversations.find(job.agent_id or 0, row, keyed_by_user=keyed).conversation
    return (found.id if found is not None else None) or 0


def _with_edit(job: Job, inbox_id: int | None, utterance: HistoryEntry) -> HistoryEntry:
    """Return the message for the model: an operator's edit of the job's own message, else the user's text."""
    prompt = edits_of(job).prompt
    if prompt is None or inbox_id != job.inbox_id:
        return utterance
    return HistoryEntry(Role.USER, prompt, estimate(prompt), files=utterance.files)


def _read_history(tx: Transaction, job: Job, last: MessageColumns, asked: set[int]) -> list[StoredMessage]:
    """Return the history up to the last message; complete texts are read where another agent answers."""
    conversation_id = job.conversation_id or 0
    if _conversation_owner(tx, job) is not None:
        return tx.conversations.newest(conversation_id, last.id or EVER, HISTORY_ROWS)
    return tx.conversations.outline(conversation_id, last, HISTORY_ROWS, asked)


def _conversation_owner(tx: Transaction, job: Job) -> int | None:
    """Return the agent that owns the conversation, if an operator chose another agent to answer in it; else None."""
    if edits_of(job).agent is None or job.conversation_id is None:
        return None
    agent_id = tx.conversations.read(job.conversation_id).agent_id
    return agent_id if agent_id != job.agent_id else None


def _read_task_results(tx: Transaction, job: Job) -> PromptMessages:
    """Return the results of the tasks that a job continues with, and the history before the results."""
    before = messages_before(tx, job, HISTORY_ROWS)
    return (results_turn(tx, job),), tuple(_as_turns(tx, before, job)), _last_outcomes(tx, before)


def _as_turns(tx: Transaction, messages: Sequence[StoredMessage], job: Job) -> list[HistoryEntry]:
    """Return the messages as turns of a prompt, with their files; a message of another agent names its author."""
    files = tx.inbox.media.of([line.inbox_id for line in messages if line.has_files and line.inbox_id is not None])
    host = _conversation_owner(tx, job)
    speakers = [_author_of(line, host) for line in messages]
    others = set(speakers) - {None, job.agent_id}
    authors = {agent_id: speaker_line(_colleague(tx.agents.read(agent_id))) for agent_id in others}
    return [
        HistoryEntry.of(message, files.get(message.inbox_id or 0, ()), authors.get(speaker, ""))
        for message, speaker in zip(messages, speakers, strict=True)
    ]


def _author_of(message: StoredMessage, host: int | None) -> int | None:
    """Return the agent that wrote a message; None for a user and for the agent that answers."""
    return message.agent_id or (host if message.role is Role.ASSISTANT else None)


def _colleague(agent: Agent) -> Colleague:
    return Colleague(agent.slug, agent.name, agent.description)


class ToolList(Protocol):
    """The tools that are available."""

    def specs(self, agent: Agent) -> tuple[ToolSpec, ...]:
        """Return the specifications, for the model, of the tools that an agent may call, by name."""
        ...


@dataclass(frozen=True)
class ContextRules:
    """Settings: the context window of a model in tokens, the tools, and the default memory scope.

    ``chat`` says whether the channel #maestro exists.
    """

    window: Callable[[str], int]
    toolbox: ToolList
    scope: MemoryScope
    chat: bool = False


class PersonaKey(NamedTuple):
    """The cache key of an agent's persona, besides the agent's row.

    ``circle`` identifies the agents that this one may delegate to (``Staff``), None for none; ``budget`` is the
    prompt's limit in tokens.
    """

    tools: frozenset[str]
    circle: str | None
    budget: int


class ContextActivities:
    """Builds the prompts for the model."""

    def __init__(self, store: Store, rules: Callable[[], ContextRules]) -> None:
        self._store = store
        self._rules = rules
        self._personas: CachedRows[tuple[int | None, PersonaKey], Persona] = CachedRows()

    @activity.defn(no_thread_cancel_exception=True)
    def build_context(self, ref: StepRef) -> ContextOutcome:
        """Store the prompt of a job and return the id of the prompt."""
        with self._store.begin() as tx:
            # An optional step that timed out in Temporal may still run in this process; it must not write any more.
            tx.jobs.steps.interrupt_others(ref)
            job = tx.jobs.read(ref.job_id)
            composed = self._composed(tx, input_job(tx, job))
            if not job.what_if:
                tx.memory.note_used(composed.facts)
            outcome = ContextOutcome(
                prompt_id=tx.llm.prompts.add(ref.job_id, composed),
                turns=len(composed.messages),
                tokens=composed.tokens,
            )
            return tx.jobs.steps.done(ref, outcome)

    def _composed(self, tx: Transaction, job: Job) -> Composition:
        rules, agent = self._rules(), tx.agents.read(job.agent_id)
        specs = rules.toolbox.specs(agent)
        tools = frozenset(spec.name for spec in specs)
        window = rules.window(model_for(job, agent.model) or tx.llm.accounts.default_model())
        budget = prompt_budget(window) - estimate_tools(specs)
        asked = tx.jobs.merged.answered_messages(job)
        matter, place = read_prompt_input(tx, job, asked), memory_scope_of(tx, job, agent, rules.scope)
        known = Knowledge(
            skills=tx.agents.skills.index().choose(matter.text, tools, agent.skill_slugs),
            facts=tx.memory.best(agent.id or 0, FACTS, place),
            states=tx.memory.states(agent.id or 0, place),
            addendum=addendum(agent) if rules.chat else "",
        )
        # A task at the delegation depth limit cannot be delegated further, so no agent is offered.
        circle = tx.agents.colleagues.staff().circle(_sender(job, asked)) if job.depth < MAX_DEPTH else None
        own = self._persona(tx, agent, PersonaKey(tools, circle, budget))
        return compose(own, matter, known, tx.now.date(), budget)

    def _persona(self, tx: Transaction, agent: Agent, nature: PersonaKey) -> Persona:
        """Return the persona of an agent, from the cache if possible, because building one is slow."""

        def make() -> Persona:
            agent_id, circle = agent.id or 0, nature.circle
            colleagues = tx.agents.colleagues.staff().colleagues(agent_id, circle) if circle is not None else ()
            return persona(agent, nature.tools, colleagues, nature.budget)

        if not tx.system.versions.are_cacheable:
            return make()
        return self._personas.get(tx.system.versions.now().agents, (agent.id, nature), make)


def _sender(job: Job, asked: Sequence[InboxRow]) -> Person | None:
    """Return the sender of the job's message, None for a job without one."""
    return next((Person.sender_of(row) for row in asked if row.id == job.inbox_id), None)
