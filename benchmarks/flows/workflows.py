"""The naive and the fused flow, registered under the name of the product's own."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.context import ContextActivities
    from activities.conversations import ConversationActivities
    from activities.delivery import DeliveryActivities
    from activities.llm import LLMActivities
    from activities.routing import RoutingActivities
    from activities.tags import TagActivities
    from benchmarks.flows.activities import FusedActivities, IdleActivities
    from maestro.domain.deliveries import Purpose
    from maestro.domain.jobs.flow import AnswerStep, DeliverStep, ModelStep
    from maestro.domain.jobs.job import JobRef, JobStatus, StepRef
    from workflows import policies
    from workflows.story import AGENT, CONVERSATION, OUTCOME

NAME = "MessageWorkflow"


@workflow.defn(name=NAME)
class NaiveFlow:
    """Nine regular activities, one after another."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Answer the message; any failure fails the workflow."""
        route = await _regular(ref, RoutingActivities.choose_agent, _step(ref, "route"))
        await _regular(ref, "show_typing", _step(ref, "typing"))
        await _regular(ref, IdleActivities.look_for_media, ref)
        recorded = await _regular(ref, ConversationActivities.record_message, _step(ref, "conversation"))
        await _regular(ref, IdleActivities.look_whether_due, ref)
        await _regular(ref, ContextActivities.build_context, _step(ref, "context"))
        await _regular(ref, LLMActivities.call_model, _model(ref))
        await _regular(ref, TagActivities.record_answer, _answer(ref))
        await _regular(ref, DeliveryActivities.deliver, _delivery(ref))
        return _publish(route.agent, recorded.conversation_id)


@workflow.defn(name=NAME)
class FusedFlow:
    """One local activity and two regular ones."""

    @workflow.run
    async def run(self, ref: JobRef) -> str:
        """Answer the message; any failure fails the workflow."""
        prepared = await workflow.execute_local_activity_method(
            FusedActivities.prepare,
            ref,
            start_to_close_timeout=policies.LOCAL_STEP,
            retry_policy=policies.RETRY_AFTER_CRASH,
        )
        await _regular(ref, LLMActivities.call_model, _model(ref))
        await _regular(ref, FusedActivities.finish, ref)
        return _publish(prepared.agent, prepared.conversation_id)


async def _regular(ref: JobRef, activity: Callable[..., Any] | str, payload: Any) -> Any:
    return await workflow.execute_activity(
        activity,
        payload,
        start_to_close_timeout=policies.DELIVERY,
        heartbeat_timeout=timedelta(seconds=ref.heartbeat_seconds),
        retry_policy=policies.RETRY_AFTER_CRASH,
    )


def _publish(agent: str, conversation_id: int) -> str:
    workflow.upsert_search_attributes(
        [
            AGENT.value_set(agent),
            CONVERSATION.value_set(str(conversation_id)),
            OUTCOME.value_set(str(JobStatus.COMPLETED)),
        ]
    )
    return JobStatus.COMPLETED


def _step(ref: JobRef, step: str) -> StepRef:
    return StepRef(job_id=ref.job_id, step=step)


def _model(ref: JobRef) -> ModelStep:
    return ModelStep(job_id=ref.job_id, step="model-1", number=1)


def _answer(ref: JobRef) -> AnswerStep:
    return AnswerStep(job_id=ref.job_id, step="tags", number=1)


def _delivery(ref: JobRef) -> DeliverStep:
    return DeliverStep(job_id=ref.job_id, step="deliver", purpose=Purpose.ANSWER, closes=True)
