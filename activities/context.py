"""The prompt, stored as references."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from temporalio import activity

from activities.matter import asked_in, matter_of
from activities.places import place_of
from maestro.domain.agents.agent import Agent, MemoryScope
from maestro.domain.chat.turns import addendum
from maestro.domain.context.composition import Composition, Knowledge, compose
from maestro.domain.context.persona import Persona, persona
from maestro.domain.context.recollection import FACTS
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs.delegations import MAX_DEPTH
from maestro.domain.jobs.edits import model_for
from maestro.domain.jobs.flow import ContextOutcome
from maestro.domain.jobs.job import Job, StepRef
from maestro.domain.llm.models import prompt_budget
from maestro.domain.llm.prompts import ToolSpec
from maestro.domain.llm.tokens import estimate_tools
from maestro.domain.people.permissions import Person
from maestro.store.editions import Shelf
from maestro.store.store import Store
from maestro.store.transaction import Transaction


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


class Nature(NamedTuple):
    """What decides how an agent is told who it is, beside its own row.

    ``circle`` is whom it may pass a task to (``Staff``), None for nobody; ``budget`` is that of the prompt.
    """

    tools: frozenset[str]
    circle: str | None
    budget: int


class ContextActivities:
    """Builds what the model will see."""

    def __init__(self, store: Store, rules: Callable[[], ContextRules]) -> None:
        self._store = store
        self._rules = rules
        self._personas: Shelf[tuple[int | None, Nature], Persona] = Shelf()

    @activity.defn(no_thread_cancel_exception=True)
    def build_context(self, ref: StepRef) -> ContextOutcome:
        """Store the prompt of this job and return its id."""
        with self._store.begin() as tx:
            # An optional step that Temporal has given up may still be under way; it must not act any more.
            tx.steps.interrupt_others(ref)
            job = tx.jobs.read(ref.job_id)
            composed = self._composed(tx, asked_in(tx, job))
            if not job.what_if:
                tx.memory.told(composed.facts)
            outcome = ContextOutcome(
                prompt_id=tx.prompts.add(ref.job_id, composed),
                turns=len(composed.messages),
                tokens=composed.tokens,
            )
            return tx.steps.done(ref, outcome)

    def _composed(self, tx: Transaction, job: Job) -> Composition:
        rules, agent = self._rules(), tx.agents.read(job.agent_id)
        specs = rules.toolbox.specs(agent)
        tools = frozenset(spec.name for spec in specs)
        window = rules.window(model_for(job, agent.model) or tx.accounts.default_model())
        budget = prompt_budget(window) - estimate_tools(specs)
        asked = tx.merges.asked(job)
        matter, place = matter_of(tx, job, asked), place_of(tx, job, agent, rules.scope)
        known = Knowledge(
            skills=tx.skills.repertoire().choose(matter.text, tools, agent.skill_slugs),
            facts=tx.memory.best(agent.id or 0, FACTS, place),
            states=tx.memory.states(agent.id or 0, place),
            addendum=addendum(agent) if rules.chat else "",
        )
        # A task that was passed on as often as it may be is passed on to nobody.
        circle = tx.colleagues.staff().circle(_sender(job, asked)) if job.depth < MAX_DEPTH else None
        own = self._persona(tx, agent, Nature(tools, circle, budget))
        return compose(own, matter, known, tx.now.date(), budget)

    def _persona(self, tx: Transaction, agent: Agent, nature: Nature) -> Persona:
        """Return who an agent is, for its model; making it takes longer than using it."""

        def make() -> Persona:
            agent_id, circle = agent.id or 0, nature.circle
            colleagues = tx.colleagues.staff().colleagues(agent_id, circle) if circle is not None else ()
            return persona(agent, nature.tools, colleagues, nature.budget)

        return self._personas.get(tx.editions.now().agents, (agent.id, nature), make)


def _sender(job: Job, asked: Sequence[InboxRow]) -> Person | None:
    """Return whose message the job came of, None for a job without one."""
    return next((Person.who_sent(row) for row in asked if row.id == job.inbox_id), None)
