"""Conversion of job filters to SQL conditions, for lists, counts, groups of failures and batches."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, func, literal, not_, union_all
from sqlalchemy.sql.expression import UnaryExpression
from sqlalchemy.sql.operators import custom_op
from sqlmodel import col, or_, select

from maestro.domain.agents.agent import Agent
from maestro.domain.jobs.batches import ItemState, ReplayItem
from maestro.domain.jobs.filters import AT_TOLERANCE, LOOK_BACK, WILDCARD, JobFilter
from maestro.domain.jobs.job import OPEN, Job, JobStep, StepState
from maestro.domain.jobs.steps import AFTERMATH
from maestro.domain.llm.budgets import Client
from maestro.domain.messages import InboxRow
from maestro.domain.webhooks.webhook import Webhook

_ESCAPE = "\\"


def without_index(column: Any) -> ColumnElement[Any]:
    """Return a column in a form that keeps SQLite from using an index on the column.

    With the index, SQLite would find all rows with a value, such as 90,000 jobs of one status, and sort them. With the
    unary plus, it reads the rows in the order of the list until the page is full.
    """
    expression: ColumnElement[Any] = column.expression
    return UnaryExpression(expression, operator=custom_op("+"), type_=expression.type)


def filter_conditions(job_filter: JobFilter, *, sifted: bool = False) -> Iterator[ColumnElement[bool]]:
    """Yield the SQL conditions of a job filter.

    ``sifted`` is for queries that read jobs in the order of a list until a page is full: see ``without_index``.
    """
    if job_filter.since is not None:
        yield col(Job.created_at) >= job_filter.since
    if job_filter.until is not None:
        yield col(Job.created_at) < job_filter.until
    if job_filter.at is not None:
        yield _around_moment(job_filter.at)
    yield from _list_conditions(job_filter, without_index if sifted else col)
    yield from _relation_conditions(job_filter)
    if job_filter.reason is not None:
        yield col(Job.reason).like(_like_pattern(job_filter.reason), escape=_ESCAPE)
    if job_filter.q:
        yield _text_condition(job_filter.q)


def _around_moment(at: datetime) -> ColumnElement[bool]:
    """Return the condition that a job was created around a time, or was open at that time.

    Each of the three queries uses an index; one condition for all would read 100,000 rows for a page.
    """
    first, last = at - AT_TOLERANCE, at + AT_TOLERANCE
    created = col(Job.created_at)
    queries = (
        select(Job.id).where(created >= first, created < last),
        select(Job.id).where(created < first, col(Job.status).in_(OPEN)),
        select(Job.id).where(created >= at - LOOK_BACK, created < first, col(Job.completed_at) >= first),
    )
    return col(Job.id).in_(union_all(*queries))


def _list_conditions(job_filter: JobFilter, column: Callable[[Any], Any]) -> Iterator[ColumnElement[bool]]:
    if job_filter.status:
        # The index on the status helps only for open jobs, which are few; almost all jobs have ended.
        yield (col if OPEN.issuperset(job_filter.status) else column)(Job.status).in_(job_filter.status)
    if job_filter.kind:
        yield column(Job.kind).in_(job_filter.kind)
    if job_filter.platform is not None:
        yield column(Job.platform) == job_filter.platform
    if job_filter.error is not None:
        yield column(Job.error) == job_filter.error
    if job_filter.agent is not None:
        yield column(Job.agent_id) == select(Agent.id).where(Agent.slug == job_filter.agent).scalar_subquery()


def select_failed_step() -> ScalarSelect[str]:
    """Return the query for the step at which a job last failed, without steps that run after every failure."""
    failed = select(JobStep.step).where(
        JobStep.job_id == Job.id,
        # The state is a literal, so that SQLite uses the partial index of failed steps.
        col(JobStep.state) == literal(StepState.FAILED, literal_execute=True),
        *(not_(col(JobStep.step).startswith(name)) for name in AFTERMATH),
    )
    return failed.order_by(col(JobStep.id).desc()).limit(1).correlate(Job).scalar_subquery()


def _relation_conditions(job_filter: JobFilter) -> Iterator[ColumnElement[bool]]:
    same = (
        (Job.account, job_filter.account),
        (Job.channel, job_filter.channel),
        (Job.priority, job_filter.priority),
        (Job.conversation_id, job_filter.conversation),
        (Job.schedule, job_filter.schedule),
    )
    yield from (col(column) == value for column, value in same if value is not None)
    if job_filter.client is not None:
        yield col(Job.client_id) == select(Client.id).where(Client.name == job_filter.client).scalar_subquery()
    if job_filter.webhook is not None:
        yield col(Job.webhook_id) == select(Webhook.id).where(Webhook.path == job_filter.webhook).scalar_subquery()
    if job_filter.batch is not None:
        begun = select(ReplayItem.began).where(
            ReplayItem.batch_id == job_filter.batch, ReplayItem.state == ItemState.BEGUN
        )
        yield col(Job.id).in_(begun)
    if job_filter.step is not None:
        yield func.coalesce(select_failed_step(), "") == job_filter.step


def _like_pattern(pattern: str) -> str:
    for special in (_ESCAPE, "%", "_"):
        pattern = pattern.replace(special, f"{_ESCAPE}{special}")
    return pattern.replace(WILDCARD, "%")


def _text_condition(text: str) -> ColumnElement[bool]:
    """Return the condition that a job's id, message, task, error, reason or user name contains a text.

    Each column has its own query, so that SQLite can use the partial indexes of jobs with an error, reason or task.
    """
    has_text = or_(*(col(place) != literal("", literal_execute=True) for place in (Job.error, Job.reason, Job.task)))
    messages = select(InboxRow.id).where(or_(*select_jobs_containing(text, InboxRow.user_name, InboxRow.content)))
    places = (
        select(Job.id).where(*select_jobs_containing(text, Job.id)),
        select(Job.id).where(has_text, or_(*select_jobs_containing(text, Job.error, Job.reason, Job.task))),
        select(Job.id).where(col(Job.inbox_id).in_(messages)),
    )
    return col(Job.id).in_(union_all(*places))


def mentions_text(text: str) -> ColumnElement[bool]:
    """Return the condition of ``JobFilter.q`` for queries of few jobs; it reads each job with its message."""
    message = select(InboxRow.id).where(
        InboxRow.id == Job.inbox_id, or_(*select_jobs_containing(text, InboxRow.user_name, InboxRow.content))
    )
    return or_(*select_jobs_containing(text, Job.id, Job.error, Job.reason, Job.task), message.correlate(Job).exists())


def select_jobs_containing(text: str, *places: str) -> Iterator[ColumnElement[bool]]:
    # ``LIKE`` ignores the case of ASCII letters; adding ``lower()`` would make it three times as slow.
    return (col(place).contains(text, autoescape=True) for place in places)


def order_newest_first() -> tuple[ColumnElement[Any], ...]:
    """Return the columns that sort lists of jobs, newest first."""
    return col(Job.created_at).desc(), col(Job.id).desc()
