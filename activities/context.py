"""Step 8 of a message: the prompt, stored as references."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from temporalio import activity

from activities.assignments import assigned, done_so_far, results, said_before
from activities.places import memory_place
from maestro.domain.agents.agent import Agent, MemoryScope
from maestro.domain.context.composition import Composition, Knowledge, Matter, compose
from maestro.domain.context.history import Utterance
from maestro.domain.context.layers import LAYER_SIZES
from maestro.domain.context.persona import Colleague, said_by
from maestro.domain.context.recollection import FACTS, SUMMARIES
from maestro.domain.conversations.conversation import Line
from maestro.domain.jobs.delegations import MAX_DEPTH
from maestro.domain.jobs.flow import ContextOutcome
from maestro.domain.jobs.job import Job, StepRef
from maestro.domain.llm.calls import Prompt
from maestro.domain.llm.models import prompt_budget
from maestro.domain.llm.prompts import PROMPT_TURNS, ToolSpec
from maestro.domain.llm.tokens import estimate_tools
from maestro.domain.skills.skill import Skill, choose
from maestro.store.store import Store
from maestro.store.transaction import Transaction

HISTORY_ROWS = 500


class Toolbox(Protocol):
    """The tools there are."""

    def specs(self, agent: Agent) -> tuple[ToolSpec, ...]:
        """Return what a model is told of the tools that an agent may call, by name."""
        ...


@dataclass(frozen=True)
class ContextRules:
    """What says the tokens of a model's window, the tools, and where agents remember that do not say it themselves.

    ``chat`` says whether there is #maestro.
    """

    window: Callable[[str], int]
    toolbox: Toolbox
    scope: MemoryScope
    chat: bool = False


class ContextActivities:
    """Builds what the model will see (specification 003, step 6)."""

    def __init__(self, store: Store, rules: Callable[[], ContextRules]) -> None:
        self._store = store
        self._rules = rules
        self._shelf = Shelf()

    @activity.defn
    def build_context(self, ref: StepRef) -> ContextOutcome:
        """Store the prompt of this job and return its id."""
        with self._store.begin() as tx:
            # An optional step that Temporal has given up may still be under way; it must not act any more.
            tx.steps.interrupt_others(ref)
            job = tx.jobs.get(ref.job_id)
            composed = self._composed(tx, job, tx.agents.get(job.agent_id))
            tx.memory.told(composed.facts)
            turns = tx.prompts.pack(composed.messages)
            prompt = tx.prompts.add(
                Prompt(
                    job_id=job.id,
                    turns=PROMPT_TURNS.dump_json(turns).decode(),
                    layers=LAYER_SIZES.dump_json(composed.layers).decode(),
                    tokens=composed.tokens,
                    created_at=tx.now,
                )
            )
            outcome = ContextOutcome(prompt_id=prompt.id or 0, turns=len(turns), tokens=composed.tokens)
            return tx.steps.done(ref, outcome)

    def _composed(self, tx: Transaction, job: Job, agent: Agent) -> Composition:
        matter, place = _matter(tx, job), memory_place(tx, job, self._rules().scope)
        specs = self._rules().toolbox.specs(agent)
        tools = frozenset(spec.name for spec in specs)
        known = Knowledge(
            tools=tools,
            colleagues=_colleagues(tx, job),
            skills=choose(self._shelf.skills(tx), matter.text, tools, agent.skill_slugs),
            facts=tx.memory.best(agent.id or 0, FACTS, place),
            states=tx.memory.states(agent.id or 0, place),
            chat=self._rules().chat,
        )
        window = self._rules().window(agent.model or tx.accounts.default_model())
        return compose(agent, matter, known, tx.now.date(), prompt_budget(window) - estimate_tools(specs))


class Shelf:
    """Keeps the skills from message to message: preparing them takes longer than using them."""

    def __init__(self) -> None:
        self._kept: tuple[object, Sequence[Skill]] = ((), ())

    def skills(self, tx: Transaction) -> Sequence[Skill]:
        """Return the skills as they are now."""
        edition = tx.skills.edition()
        if edition != self._kept[0]:
            self._kept = (edition, tx.skills.enabled())
        return self._kept[1]


def _matter(tx: Transaction, job: Job) -> Matter:
    """Return what the job is to answer, and what was said before, by the kind of the job."""
    if job.task:
        return assigned(tx, job)
    user_name = tx.inbox.get(job.inbox_id).user_name if job.inbox_id is not None else ""
    own = done_so_far(tx, job) if job.parent_id is not None else ()
    if own:
        return Matter(turns=(results(tx, job),), earlier=own, user_name=user_name)
    turns, earlier = _asked(tx, job) if job.parent_id is None else _results(tx, job)
    return Matter(
        turns=turns,
        earlier=earlier,
        summaries=tuple(tx.compactions.latest(job.conversation_id or 0, SUMMARIES)),
        user_name=user_name,
    )


def _asked(tx: Transaction, job: Job) -> tuple[tuple[Utterance, ...], tuple[Utterance, ...]]:
    """Return the messages that a job answers, oldest first, and what was said before them, newest first."""
    # Messages that are answered together are asked together; the newest of them ends the history.
    rows = tx.merges.asked(job)
    recorded = tx.conversations.recall(rows[-1].id)
    newest_first = tx.conversations.newest(job.conversation_id or 0, (recorded and recorded.id) or 0, HISTORY_ROWS)
    said = _said(tx, newest_first)
    asked = {row.id for row in rows}
    return (
        tuple(one for one, row in reversed(list(zip(said, newest_first, strict=True))) if row.inbox_id in asked),
        tuple(one for one, row in zip(said, newest_first, strict=True) if row.inbox_id not in asked),
    )


def _results(tx: Transaction, job: Job) -> tuple[tuple[Utterance, ...], tuple[Utterance, ...]]:
    """Return what became of the tasks that a job goes on with, and what was said in the conversation meanwhile."""
    return (results(tx, job),), tuple(_said(tx, said_before(tx, job, HISTORY_ROWS)))


def _said(tx: Transaction, messages: Sequence[Line]) -> list[Utterance]:
    """Return what messages say, with their files, and whose words they are where another agent said them."""
    files = tx.media.of([line.inbox_id for line in messages if line.files and line.inbox_id is not None])
    others = {message.agent_id for message in messages} - {None}
    authors = {agent_id: said_by(_colleague(tx.agents.get(agent_id))) for agent_id in others}
    return [
        Utterance.of(message, files.get(message.inbox_id or 0, ()), authors.get(message.agent_id, ""))
        for message in messages
    ]


def _colleague(agent: Agent) -> Colleague:
    return Colleague(agent.slug, agent.name, agent.description)


def _colleagues(tx: Transaction, job: Job) -> tuple[Colleague, ...]:
    """Return whom a task may be passed to; nobody, where it was passed on as often as it may be."""
    return tx.colleagues.of(job.agent_id, tx.inbox.person(job.inbox_id)) if job.depth < MAX_DEPTH else ()
