"""Filters of jobs as conditions of queries: one meaning for lists, counts, groups of failures and batches."""

from collections.abc import Iterator

from sqlalchemy import ColumnElement, ScalarSelect, func, not_
from sqlmodel import col, or_, select

from maestro.domain.agents.agent import Agent
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs.batches import ItemState, ReplayItem
from maestro.domain.jobs.failures import ANY
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.forecast import AFTERMATH
from maestro.domain.jobs.job import Job, JobStep, StepState
from maestro.domain.llm.budgets import Client
from maestro.domain.webhooks.webhook import Webhook

_ESCAPE = "\\"


def conditions(wanted: JobFilter) -> Iterator[ColumnElement[bool]]:
    """Yield what a job must keep to be among those that are wanted."""
    if wanted.status:
        yield col(Job.status).in_(wanted.status)
    if wanted.kind:
        yield col(Job.kind).in_(wanted.kind)
    if wanted.since is not None:
        yield col(Job.created_at) >= wanted.since
    if wanted.until is not None:
        yield col(Job.created_at) < wanted.until
    yield from _equal(wanted)
    yield from _related(wanted)
    if wanted.reason is not None:
        yield col(Job.reason).like(_like(wanted.reason), escape=_ESCAPE)
    if wanted.q:
        yield _mentions(wanted.q)


def failed_step() -> ScalarSelect[str]:
    """Return the step that a job failed with last, not counting those that follow every failure."""
    failed = select(JobStep.step).where(
        JobStep.job_id == Job.id,
        JobStep.state == StepState.FAILED,
        *(not_(col(JobStep.step).startswith(name)) for name in AFTERMATH),
    )
    return failed.order_by(col(JobStep.id).desc()).limit(1).correlate(Job).scalar_subquery()


def _equal(wanted: JobFilter) -> Iterator[ColumnElement[bool]]:
    same = (
        (Job.platform, wanted.platform),
        (Job.account, wanted.account),
        (Job.channel, wanted.channel),
        (Job.priority, wanted.priority),
        (Job.conversation_id, wanted.conversation),
        (Job.schedule, wanted.schedule),
        (Job.error, wanted.error),
    )
    yield from (col(column) == value for column, value in same if value is not None)


def _related(wanted: JobFilter) -> Iterator[ColumnElement[bool]]:
    if wanted.agent is not None:
        yield col(Job.agent_id) == select(Agent.id).where(Agent.slug == wanted.agent).scalar_subquery()
    if wanted.client is not None:
        yield col(Job.client_id) == select(Client.id).where(Client.name == wanted.client).scalar_subquery()
    if wanted.webhook is not None:
        yield col(Job.webhook_id) == select(Webhook.id).where(Webhook.path == wanted.webhook).scalar_subquery()
    if wanted.batch is not None:
        begun = select(ReplayItem.began).where(ReplayItem.batch_id == wanted.batch, ReplayItem.state == ItemState.BEGUN)
        yield col(Job.id).in_(begun)
    if wanted.step is not None:
        yield func.coalesce(failed_step(), "") == wanted.step


def _like(pattern: str) -> str:
    for special in (_ESCAPE, "%", "_"):
        pattern = pattern.replace(special, f"{_ESCAPE}{special}")
    return pattern.replace(ANY, "%")


def _mentions(text: str) -> ColumnElement[bool]:
    messages = select(InboxRow.id).where(or_(*_containing(text, InboxRow.user_name, InboxRow.content)))
    return or_(*_containing(text, Job.id, Job.error, Job.reason, Job.task), col(Job.inbox_id).in_(messages))


def _containing(text: str, *places: str) -> Iterator[ColumnElement[bool]]:
    return (col(place).icontains(text, autoescape=True) for place in places)
