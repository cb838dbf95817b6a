"""Queries for pages and counts of jobs, and for all rows of one job; each query reads a limited number of rows."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import String, and_, func, not_, tuple_, type_coerce
from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from maestro.domain.agents.agent import Agent
from maestro.domain.context.views import JobPageTexts, RecordedAnswer
from maestro.domain.conversations.conversation import ArchivedMessage, Message
from maestro.domain.deliveries import Delivery, DeliveryPurpose
from maestro.domain.errors import NotFound
from maestro.domain.jobs.filters import FailedJob, FailureCount, JobFilter, PageCursor
from maestro.domain.jobs.job import OPEN, Job, JobKind, JobStatus, first_model
from maestro.domain.jobs.views import JobQuestionView, JobRecord, ListedJob, tool_view
from maestro.domain.llm.calls import FirstChoice, LLMCall, Substitution, final_answer, find_substitution
from maestro.domain.messages import InboxRow
from maestro.domain.overview import OldestJob, WorkOverview
from maestro.domain.questions.question import Question
from maestro.domain.webhooks.webhook import Webhook
from maestro.store.agents.edits import AgentVersions
from maestro.store.deliveries.deliveries import Deliveries
from maestro.store.engine.repository import Repository
from maestro.store.jobs.claims import MergedJobs
from maestro.store.jobs.delegations import Delegations
from maestro.store.jobs.filters import (
    filter_conditions,
    mentions_text,
    order_newest_first,
    select_failed_step,
    without_index,
)
from maestro.store.jobs.questions import Actions, ToolRuns
from maestro.store.jobs.steps import StepRecords
from maestro.store.llm.accounts import Accounts
from maestro.store.llm.calls import Calls
from maestro.store.llm.prompts import Prompts

NEWEST = 1_000
"""The number of newest jobs that a search reads first; a common text fills a page from these jobs alone."""
TEXT = 400
"""The most characters of a message that a list shows; a message may have 300,000 characters."""

MOST = 20_000
"""The most jobs that are counted, newest first; a view says if there are more jobs."""
SAMPLE = 1_000
"""The most answers that are timed, and the most failures that are listed, newest first."""


class JobTexts(Repository):
    """Queries for the texts of one job, such as the message and the answer."""

    def read_texts_of_job(self, job: Job) -> JobPageTexts:
        """Return the texts that the page of a job shows."""
        return JobPageTexts(
            message=self._session.get(InboxRow, job.inbox_id) if job.inbox_id is not None else None,
            answer=self.find_answer(job),
            layers=Prompts(self._link, self._now).read_layer_sizes(job.id),
            ahead=self._find_job_ahead(job),
        )

    def find_answer(self, job: Job) -> RecordedAnswer | None:
        """Return the answer of a job, or None if the job has none or the answer was deleted."""
        if job.answer_id is None:
            return RecordedAnswer(job.said) if job.said else None
        message = self._session.get(Message, job.answer_id) or self._session.get(ArchivedMessage, job.answer_id)
        return RecordedAnswer(message.content, message.created_at, message.superseded) if message is not None else None

    def _find_job_ahead(self, job: Job) -> str:
        if job.status is not JobStatus.PENDING or job.lane is None or job.turn is None:
            return ""
        # A waiting job has released its lane, so it blocks no other job.
        places = (JobStatus.PENDING, JobStatus.RUNNING)
        earlier = select(Job.id).where(Job.lane == job.lane, col(Job.turn) < job.turn, col(Job.status).in_(places))
        return self._find_first(earlier.order_by(col(Job.turn).desc()).limit(1)) or ""


class JobLists(Repository):
    """Queries for lists of jobs, and for all rows of one job."""

    def list_jobs(
        self, job_filter: JobFilter, after: PageCursor | None, limit: int, without: Sequence[JobFilter] = ()
    ) -> tuple[Sequence[ListedJob], PageCursor | None]:
        """Return up to ``limit`` jobs after a cursor, newest first, and the cursor of the next page.

        The order of jobs never changes, so each job is on one page only, even if jobs change between two requests. Jobs
        that match a filter in ``without`` are left out.
        """
        left_out = [not_(and_(*filter_conditions(excluded, sifted=True))) for excluded in without]
        earlier = () if after is None else (tuple_(Job.created_at, Job.id) < (after.created_at, after.job_id),)
        listed: Sequence[ListedJob] = ()
        if job_filter.q:
            newest = select(Job.id).where(*earlier).order_by(*order_newest_first()).limit(NEWEST).scalar_subquery()
            others = filter_conditions(job_filter.model_copy(update={"q": None}), sifted=True)
            page = select(Job.id).where(col(Job.id).in_(newest), *others, *left_out, mentions_text(job_filter.q))
            listed = self._read_page(page, limit)
        if len(listed) <= limit:
            listed = self._read_page(
                select(Job.id).where(*filter_conditions(job_filter, sifted=True), *left_out, *earlier), limit
            )
        last = listed[limit - 1].job if len(listed) > limit else None
        return listed[:limit], PageCursor(last.created_at, last.id) if last else None

    def _read_page(self, page: SelectOfScalar[str], limit: int) -> Sequence[ListedJob]:
        # A subquery selects the page before the joins; joining 100,000 jobs first would take ten times as long.
        chosen = page.order_by(*order_newest_first()).limit(limit + 1).scalar_subquery()
        rows = self._session.exec(_list_query().where(col(Job.id).in_(chosen)).order_by(*order_newest_first()))
        return [ListedJob(*row) for row in rows]

    def read_record(self, job_id: str, cheaper: str = "") -> JobRecord:
        """Return all rows of a job; raises ``NotFound``. ``cheaper`` is the model used once a budget is spent."""
        row = self._find_first(_list_query().where(Job.id == job_id))
        if row is None:
            raise NotFound(f"job {job_id} does not exist")
        listed, calls = ListedJob(*row), Calls(self._link, self._now).list_calls_of_job(job_id)
        prompts = Prompts(self._link, self._now)
        return JobRecord(
            listed=listed,
            substitution=self._find_substitution(listed.job, calls, cheaper),
            steps=StepRecords(self._link, self._now).list_attempts_of_job(job_id),
            calls=calls,
            deliveries=Deliveries(self._link, self._now).list_deliveries_of_job(job_id),
            actions=Actions(self._link, self._now).list_actions_of_job(job_id),
            led_to=[job.id for job in Delegations(self._link, self._now).list_children(job_id)],
            merged=[job.id for job in MergedJobs(self._link, self._now).list_merged_jobs([job_id])],
            restarts=self._find_all(select(Job).where(Job.restarted_from == job_id).order_by(col(Job.created_at))),
            tools=[
                tool_view(run, prompts.read_beginning(run.arguments), prompts.read_beginning(run.result))
                for run in ToolRuns(self._link, self._now).list_tool_runs_of_job(job_id)
            ],
            questions=[
                JobQuestionView.from_row(row, status=row.status_at(self._now))
                for row in self._session.exec(
                    select(Question).where(Question.job_id == job_id).order_by(col(Question.id))
                )
            ],
        )

    def _find_substitution(self, job: Job, calls: Sequence[LLMCall], cheaper: str) -> Substitution | None:
        answer = final_answer(calls)
        agent = self._session.get(Agent, job.agent_id) if job.agent_id is not None else None
        if answer is None or agent is None:
            return None
        accounts = Accounts(self._link, self._now)
        then = AgentVersions(self._link, self._now).read_fields_at(agent, answer.started_at) or agent
        limits = accounts.read_cooldown_ends(answer.started_at)
        return find_substitution(
            calls, FirstChoice(first_model(job, then.model), accounts.list_accounts(), limits, cheaper)
        )


def _list_query() -> Any:
    text = func.substr(func.coalesce(InboxRow.content, Job.task), 1, TEXT)
    return (
        select(Job, Agent.slug, InboxRow.user_name, text)
        .add_columns(col(Webhook.path))
        .outerjoin(Agent, col(Agent.id) == Job.agent_id)
        .outerjoin(InboxRow, col(InboxRow.id) == Job.inbox_id)
        .outerjoin(Webhook, col(Webhook.id) == Job.webhook_id)
    )


class JobCounts(Repository):
    """Queries for counts of jobs by status, and for groups of failures."""

    def count_by_status(self, job_filter: JobFilter) -> Mapping[JobStatus, int]:
        """Count the jobs that match a filter, by status; the status in the filter is ignored."""
        others = job_filter.model_copy(update={"status": ()})
        status = without_index(Job.status)
        counts = select(status, func.count()).where(*filter_conditions(others, sifted=True)).group_by(status)
        return dict(self._run_statement(counts).all())

    def group_failures(self, job_filter: JobFilter) -> Sequence[FailureCount]:
        """Count the matching jobs by cause of failure; without a status in the filter, count failed jobs."""
        chosen = job_filter if job_filter.status else job_filter.model_copy(update={"status": (JobStatus.FAILED,)})
        each = (
            select(Job.id, Job.error, Job.reason, Job.agent_id)
            # The times stay texts, because only the first and the last time of a group are parsed for display.
            .add_columns(
                type_coerce(Job.completed_at, String).label("completed_at"),
                func.coalesce(select_failed_step(), "").label("step"),
            )
            .where(*filter_conditions(chosen), col(Job.completed_at).is_not(None))
            .subquery()
        )
        kind = (each.c.error, each.c.step, each.c.reason, each.c.agent_id)
        groups = (
            select(each.c.error, each.c.step, each.c.reason, func.max(Agent.slug))
            .add_columns(func.count(), func.min(each.c.completed_at), func.max(each.c.completed_at))
            .add_columns(func.max(each.c.id))
            .outerjoin_from(each, Agent, col(Agent.id) == each.c.agent_id)
            .group_by(*kind)
        )
        return [FailureCount(*row) for row in self._run_statement(groups).all()]

    def list_failed_jobs(self, job_filter: JobFilter) -> Iterator[FailedJob]:
        """Yield the failed jobs that match a filter, newest first."""
        failed = select(Job.id, Job.error, Job.reason, Job.created_at).where(
            *filter_conditions(job_filter, sifted=True)
        )
        yield from (
            FailedJob(*row)
            for row in self._run_statement(failed.order_by(col(Job.created_at).desc(), col(Job.id).desc()))
        )


class Overview(Repository):
    """Queries for the overview page of operators."""

    def read_work(self, since: datetime) -> WorkOverview:
        """Return the counts and the oldest of the open jobs, and the outcomes of jobs created since a time."""
        recent = select(Job.status).where(col(Job.created_at) >= since).order_by(*order_newest_first()).limit(MOST + 1)
        statuses: list[JobStatus] = list(self._run_statement(recent).scalars())
        counts = select(Job.status, func.count()).where(col(Job.status).in_(OPEN)).group_by(col(Job.status))
        pending = select(Job.id, Job.created_at).where(Job.status == JobStatus.PENDING).order_by(col(Job.turn)).limit(1)
        waiting = (
            select(Job.id, Job.waits_since, Job.waits_for)
            .where(Job.status == JobStatus.WAITING, col(Job.waits_since).is_not(None))
            .order_by(col(Job.waits_since))
            .limit(1)
        )
        accounts = select(col(Job.platform), col(Job.account)).where(Job.status == JobStatus.PENDING).limit(MOST)
        return WorkOverview(
            any_job=self._find_first(select(Job.id).limit(1)) is not None,
            open=dict(self._run_statement(counts).all()),
            ended={status: count for status, count in Counter(statuses[:MOST]).items() if status.ended},
            capped=len(statuses) > MOST,
            oldest=[OldestJob(*row) for query in (pending, waiting) for row in self._run_statement(query)],
            pending=Counter((platform, account) for platform, account in self._run_statement(accounts)),
        )

    def read_first_answers(self, since: datetime) -> Sequence[tuple[datetime, timedelta]]:
        """Return when messages arrived since a time, and how long each waited for its answer's first chunk."""
        sent = (
            select(func.min(Delivery.sent_at))
            .where(
                Delivery.job_id == Job.id,
                Delivery.purpose == DeliveryPurpose.ANSWER,
                col(Delivery.sent_at).is_not(None),
            )
            .correlate(Job)
            .scalar_subquery()
        )
        chosen = (
            select(Job.id)
            .where(
                col(Job.created_at) >= since,
                without_index(col(Job.kind)) == JobKind.MESSAGE,
                without_index(col(Job.status)) == JobStatus.COMPLETED,
            )
            .order_by(*order_newest_first())
            .limit(SAMPLE)
        )
        answered = (
            select(InboxRow.received_at, sent)
            .select_from(Job)
            .join(InboxRow, col(InboxRow.id) == Job.inbox_id)
            .where(col(Job.id).in_(chosen.scalar_subquery()))
        )
        return [(came, left - came) for came, left in self._run_statement(answered) if left is not None]

    def list_failures(self, since: datetime) -> Sequence[FailedJob]:
        """Return the newest failed jobs that were created since a time, newest first."""
        failed = (
            select(Job.id, Job.error, Job.reason)
            .add_columns(col(Job.completed_at), col(Job.created_at))
            .where(col(Job.created_at) >= since, without_index(col(Job.status)) == JobStatus.FAILED)
            .order_by(*order_newest_first())
            .limit(SAMPLE)
        )
        return [
            FailedJob(id_, error, reason, ended or came)
            for id_, error, reason, ended, came in self._run_statement(failed)
        ]
