"""Step 9 of a message: one model call."""

import asyncio

from temporalio import activity

from activities.routing import Typing
from maestro.domain.flow import ModelOutcome, ModelStep
from maestro.domain.prompts import PROMPT_TURNS, CallKey, LLMRequest, LLMResponse
from maestro.llm.protocols import LLMClient
from maestro.store.store import Store


class LLMActivities:
    """Asks the model through the middleware chain (specification 003, step 10)."""

    def __init__(self, store: Store, llm: LLMClient, typing: Typing, max_output_tokens: int) -> None:
        self._store = store
        self._llm = llm
        self._typing = typing
        self._max_output_tokens = max_output_tokens

    @activity.defn
    async def call_model(self, step: ModelStep) -> ModelOutcome:
        """Return what the call took; its answer is in the store before this returns (design invariant 5).

        The indicator is shown from routing on; after a restart of the process or a resume of the job, from here.
        """
        request = await asyncio.to_thread(self._request, step)
        response = await self._llm.complete(request)
        return await asyncio.to_thread(self._finish, step, response)

    def _request(self, step: ModelStep) -> LLMRequest:
        with self._store.view() as tx:
            job = tx.jobs.get(step.job_id)
            self._typing.start(job.id, job.address)
            turns = PROMPT_TURNS.validate_json(tx.prompts.of_job(step.job_id).turns)
            return LLMRequest(
                key=CallKey(job_id=step.job_id, number=step.number),
                platform=job.platform,
                model=tx.agents.get(job.agent_id).model,
                messages=tx.prompts.unpack(turns),
                max_output_tokens=self._max_output_tokens,
            )

    def _finish(self, step: ModelStep, response: LLMResponse) -> ModelOutcome:
        outcome = ModelOutcome(
            number=step.number,
            **response.model_dump(include=set(ModelOutcome.model_fields) - {"number"}),
        )
        with self._store.begin() as tx:
            return tx.steps.done(step, outcome)
