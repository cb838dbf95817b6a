"""Step 8 of a message: the prompt, stored as references."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from temporalio import activity

from activities.assignments import assigned, done_so_far, results, said_before
from activities.places import place_of
from activities.shelves import Kept, Nature, Shelves
from maestro.domain.agents.agent import Agent, MemoryScope
from maestro.domain.chat.turns import addendum
from maestro.domain.context.composition import Composition, Knowledge, Matter, compose
from maestro.domain.context.history import Utterance
from maestro.domain.context.persona import Colleague, said_by
from maestro.domain.context.recollection import FACTS, SUMMARIES
from maestro.domain.conversations.conversation import Line
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs.delegations import MAX_DEPTH
from maestro.domain.jobs.flow import ContextOutcome
from maestro.domain.jobs.job import Job, StepRef
from maestro.domain.llm.models import prompt_budget
from maestro.domain.llm.prompts import ToolSpec
from maestro.domain.llm.tokens import estimate_tools
from maestro.domain.people.permissions import Person
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
        self._shelves = Shelves()

    @activity.defn
    def build_context(self, ref: StepRef) -> ContextOutcome:
        """Store the prompt of this job and return its id."""
        with self._store.begin() as tx:
            # An optional step that Temporal has given up may still be under way; it must not act any more.
            tx.steps.interrupt_others(ref)
            composed = self._composed(tx, tx.jobs.read(ref.job_id))
            tx.memory.told(composed.facts)
            outcome = ContextOutcome(
                prompt_id=tx.prompts.add(ref.job_id, composed),
                turns=len(composed.messages),
                tokens=composed.tokens,
            )
            return tx.steps.done(ref, outcome)

    def _composed(self, tx: Transaction, job: Job) -> Composition:
        rules, kept = self._rules(), Kept(self._shelves, tx)
        agent = kept.agent(job.agent_id)
        specs = rules.toolbox.specs(agent)
        tools = frozenset(spec.name for spec in specs)
        window = rules.window(agent.model or kept.default_model())
        budget = prompt_budget(window) - estimate_tools(specs)
        asked = tx.merges.asked(job)
        matter, place = _matter(tx, kept, job, asked), place_of(tx, job, agent, rules.scope)
        known = Knowledge(
            skills=kept.repertoire().choose(matter.text, tools, agent.skill_slugs),
            facts=tx.memory.best(agent.id or 0, FACTS, place),
            states=tx.memory.states(agent.id or 0, place),
            addendum=addendum(agent) if rules.chat else "",
        )
        # A task that was passed on as often as it may be is passed on to nobody.
        circle = kept.staff().circle(_sender(job, asked)) if job.depth < MAX_DEPTH else None
        own = kept.persona(agent, Nature(tools, circle, budget))
        return compose(own, matter, known, tx.now.date(), budget)


def _matter(tx: Transaction, kept: Kept, job: Job, asked: Sequence[InboxRow]) -> Matter:
    """Return what the job is to answer, and what was said before, by the kind of the job."""
    user_name = next((row.user_name for row in asked if row.id == job.inbox_id), "")
    if job.task:
        return Matter(turns=(assigned(tx, job),), user_name=user_name)
    own = done_so_far(tx, job) if job.parent_id is not None else ()
    if own:
        return Matter(turns=(results(tx, job),), earlier=own, user_name=user_name)
    turns, earlier = _asked(tx, kept, job, asked) if job.parent_id is None else _results(tx, kept, job)
    return Matter(
        turns=turns,
        earlier=earlier,
        summaries=tuple(tx.compactions.latest(job.conversation_id or 0, SUMMARIES)),
        user_name=user_name,
    )


def _asked(
    tx: Transaction, kept: Kept, job: Job, asked: Sequence[InboxRow]
) -> tuple[tuple[Utterance, ...], tuple[Utterance, ...]]:
    """Return the messages that a job answers, oldest first, and what was said before them, newest first."""
    # Messages that are answered together are asked together; the newest of them ends the history.
    last = tx.conversations.recall(asked[-1].id)
    if last is None:
        return (), ()
    ids = {row.id or 0 for row in asked}
    newest_first = tx.conversations.outline(job.conversation_id or 0, last, HISTORY_ROWS, ids)
    turns: list[Utterance] = []
    earlier: list[Utterance] = []
    for line, utterance in zip(newest_first, _said(tx, kept, newest_first), strict=True):
        (turns if line.inbox_id in ids else earlier).append(utterance)
    return tuple(reversed(turns)), tuple(earlier)


def _results(tx: Transaction, kept: Kept, job: Job) -> tuple[tuple[Utterance, ...], tuple[Utterance, ...]]:
    """Return what became of the tasks that a job goes on with, and what was said in the conversation meanwhile."""
    return (results(tx, job),), tuple(_said(tx, kept, said_before(tx, job, HISTORY_ROWS)))


def _said(tx: Transaction, kept: Kept, messages: Sequence[Line]) -> list[Utterance]:
    """Return what messages say, with their files, and whose words they are where another agent said them."""
    files = tx.media.of([line.inbox_id for line in messages if line.has_files and line.inbox_id is not None])
    others = {message.agent_id for message in messages} - {None}
    authors = {agent_id: said_by(_colleague(kept.agent(agent_id))) for agent_id in others}
    return [
        Utterance.of(message, files.get(message.inbox_id or 0, ()), authors.get(message.agent_id, ""))
        for message in messages
    ]


def _sender(job: Job, asked: Sequence[InboxRow]) -> Person | None:
    """Return whose message the job came of, None for a job without one."""
    return next((Person.who_sent(row) for row in asked if row.id == job.inbox_id), None)


def _colleague(agent: Agent) -> Colleague:
    return Colleague(agent.slug, agent.name, agent.description)
