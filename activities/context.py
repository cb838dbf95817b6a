"""Step 8 of a message: the prompt, stored as references."""

from temporalio import activity

from maestro.domain.calls import Prompt
from maestro.domain.context import HISTORY_ROWS, compose, history_budget, select_history, system_prompt
from maestro.domain.flow import ContextOutcome
from maestro.domain.jobs import StepRef
from maestro.domain.models import window
from maestro.domain.prompts import PROMPT_TURNS
from maestro.domain.tokens import estimate
from maestro.store.store import Store


class ContextActivities:
    """Builds what the model will see (specification 003, step 6); ``default_model`` is the account's own."""

    def __init__(self, store: Store, default_model: str) -> None:
        self._store = store
        self._default_model = default_model

    @activity.defn
    def build_context(self, ref: StepRef) -> ContextOutcome:
        """Store the prompt of this job and return its id."""
        with self._store.begin() as tx:
            job = tx.jobs.get(ref.job_id)
            asked = tx.conversations.message_of_inbox(job.inbox_id)
            agent = tx.agents.get(job.agent_id)
            row = tx.inbox.get(job.inbox_id)
            system = system_prompt(agent, tx.now.date(), row.user_name)
            up_to = (asked and asked.id) or 0
            newest = tx.conversations.newest(job.conversation_id or 0, up_to, HISTORY_ROWS)
            history = select_history(newest, history_budget(window(agent.model or self._default_model), system))
            turns = tx.prompts.pack(compose(system, history))
            tokens = estimate(system) + sum(message.token_estimate for message in history)
            prompt = tx.prompts.add(
                Prompt(
                    job_id=job.id,
                    turns=PROMPT_TURNS.dump_json(turns).decode(),
                    tokens=tokens,
                    created_at=tx.now,
                )
            )
            return tx.steps.done(ref, ContextOutcome(prompt_id=prompt.id or 0, turns=len(turns), tokens=tokens))
