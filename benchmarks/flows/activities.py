"""What the other flows need besides the product's own activities: steps that find nothing to do, and steps in one."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from temporalio import activity

from maestro.domain.conversations.compaction import is_due
from maestro.domain.deliveries import Purpose
from maestro.domain.jobs.flow import AnswerStep, DeliverOutcome, DeliverStep
from maestro.domain.jobs.job import JobRef, StepRef
from maestro.domain.values import Value
from maestro.store.store import Store

FINAL_CALL = 1
WINDOW = 200_000

Journaled = Mapping[str, Callable[..., Any]]
"""The product's activities by name, each with its journal around it."""


class Prepared(Value):
    """What the search attributes will say."""

    agent: str
    conversation_id: int


class IdleActivities:
    """Steps that look whether there is something to do and find nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @activity.defn(no_thread_cancel_exception=True)
    def look_for_media(self, ref: JobRef) -> int:
        """Return how many files came with the message."""
        with self._store.view() as tx:
            return len(tx.inbox.get(tx.jobs.get(ref.job_id).inbox_id).files())

    @activity.defn(no_thread_cancel_exception=True)
    def look_whether_due(self, ref: JobRef) -> bool:
        """Say whether the conversation is due for compaction."""
        with self._store.view() as tx:
            return is_due(tx.conversations.get(tx.jobs.get(ref.job_id).conversation_id), WINDOW)


class FusedActivities:
    """Several of the product's steps in one activity, each still a transaction with its own rows."""

    def __init__(self, journaled: Journaled) -> None:
        self._journaled = journaled

    @activity.defn(no_thread_cancel_exception=True)
    def prepare(self, ref: JobRef) -> Prepared:
        """Route, record the message, build the context."""
        route = self._journaled["choose_agent"](StepRef(job_id=ref.job_id, step="route"))
        recorded = self._journaled["record_message"](StepRef(job_id=ref.job_id, step="conversation"))
        self._journaled["build_context"](StepRef(job_id=ref.job_id, step="context"))
        return Prepared(agent=route.agent, conversation_id=recorded.conversation_id)

    @activity.defn
    async def finish(self, ref: JobRef) -> DeliverOutcome:
        """Record the answer and deliver it."""
        answer = AnswerStep(job_id=ref.job_id, step="tags", number=FINAL_CALL)
        await asyncio.to_thread(self._journaled["record_answer"], answer)
        step = DeliverStep(job_id=ref.job_id, step="deliver", purpose=Purpose.ANSWER, closes=True)
        outcome: DeliverOutcome = await self._journaled["deliver"](step)
        return outcome
