"""Step 8 of a message: the prompt, stored as references."""

from collections.abc import Callable, Sequence
from typing import Protocol

from temporalio import activity

from maestro.domain.agents import Agent
from maestro.domain.calls import Prompt
from maestro.domain.context import (
    FACTS,
    HISTORY_ROWS,
    SUMMARIES,
    Recollection,
    compose,
    recollect,
    select_history,
    system_cost,
    system_prompt,
)
from maestro.domain.flow import ContextOutcome
from maestro.domain.jobs import Job, StepRef
from maestro.domain.models import prompt_budget
from maestro.domain.prompts import PROMPT_TURNS, PromptMessage, ToolSpec
from maestro.domain.tokens import estimate_messages, estimate_tools
from maestro.store.store import Store
from maestro.store.transaction import Transaction


class Toolbox(Protocol):
    """The tools there are."""

    def specs(self, allowed: Sequence[str] | None) -> tuple[ToolSpec, ...]:
        """Return what a model is told of the allowed tools; None for those that everybody may call."""
        ...


class ContextActivities:
    """Builds what the model will see (specification 003, step 6).

    ``window`` says the tokens of a model's window, ``toolbox`` what it is told of its tools beside the prompt.
    """

    def __init__(self, store: Store, window: Callable[[str], int], toolbox: Toolbox) -> None:
        self._store = store
        self._window = window
        self._toolbox = toolbox

    @activity.defn
    def build_context(self, ref: StepRef) -> ContextOutcome:
        """Store the prompt of this job and return its id."""
        with self._store.begin() as tx:
            # An optional step that Temporal has given up may still be under way; it must not act any more.
            tx.steps.interrupt_others(ref)
            job = tx.jobs.get(ref.job_id)
            agent = tx.agents.get(job.agent_id)
            tokens_of_window = self._window(agent.model or tx.accounts.default_model())
            tools = estimate_tools(self._toolbox.specs(agent.tool_names))
            messages = _prompt(tx, job, agent, prompt_budget(tokens_of_window) - tools)
            turns = tx.prompts.pack(messages)
            tokens = estimate_messages(messages)
            prompt = tx.prompts.add(
                Prompt(
                    job_id=job.id,
                    turns=PROMPT_TURNS.dump_json(turns).decode(),
                    tokens=tokens,
                    created_at=tx.now,
                )
            )
            return tx.steps.done(ref, ContextOutcome(prompt_id=prompt.id or 0, turns=len(turns), tokens=tokens))


def _prompt(tx: Transaction, job: Job, agent: Agent, budget: int) -> tuple[PromptMessage, ...]:
    """Return the whole prompt, within the budget as long as the agent's own words and the message itself are."""
    conversation_id = job.conversation_id or 0
    user_name = tx.inbox.get(job.inbox_id).user_name
    bare = system_prompt(agent, tx.now.date(), user_name, Recollection())
    past = recollect(
        tx.memory.best(agent.id or 0, FACTS),
        tx.compactions.latest(conversation_id, SUMMARIES),
        budget - system_cost(bare),
    )
    tx.memory.told(past.facts)
    system = system_prompt(agent, tx.now.date(), user_name, past)
    # Of messages that are answered together the newest ends the history; those before it are in it.
    last = tx.merges.last_asked(job)
    asked = tx.conversations.recall(last.id if last is not None else None)
    newest = tx.conversations.newest(conversation_id, (asked and asked.id) or 0, HISTORY_ROWS)
    files = tx.media.of([message.inbox_id for message in newest if message.inbox_id is not None])
    return compose(system, select_history(newest, files, budget - system_cost(system)))
