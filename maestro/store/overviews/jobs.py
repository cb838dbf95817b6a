"""Queries for filtered pages of jobs, and for all rows of one job."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, func, not_, tuple_
from sqlmodel import col, select
from sqlmodel.sql.expression import SelectOfScalar

from maestro.domain.agents.agent import Agent
from maestro.domain.context.views import JobPageTexts, RecordedAnswer
from maestro.domain.conversations.conversation import ArchivedMessage, Message
from maestro.domain.errors import NotFound
from maestro.domain.jobs.filters import JobFilter, PageCursor
from maestro.domain.jobs.job import Job, JobStatus, model_for
from maestro.domain.jobs.views import JobQuestionView, JobRecord, ListedJob, tool_view
from maestro.domain.llm.calls import FirstChoice, LLMCall, Substitution, final_answer, substitution
from maestro.domain.messages import InboxRow
from maestro.domain.questions.question import Question
from maestro.domain.webhooks.webhook import Webhook
from maestro.store.agents.edits import AgentVersions
from maestro.store.deliveries.deliveries import Deliveries
from maestro.store.engine.repository import Repository
from maestro.store.jobs.actions import Actions, ToolRuns
from maestro.store.jobs.claims import MergedJobs
from maestro.store.jobs.delegations import Delegations
from maestro.store.jobs.filters import conditions, job_mentions, newest_first
from maestro.store.jobs.steps import StepRecords
from maestro.store.llm.accounts import Accounts
from maestro.store.llm.calls import Calls
from maestro.store.llm.prompts import Prompts

NEWEST = 1_000
"""The number of newest jobs that a search reads first: a common text fills a page without older jobs."""
TEXT = 400
"""The most characters of a message that a list shows, because a message may have 300,000."""


class JobTexts(Repository):
    """Queries for the texts of one job, such as its message and its answer."""

    def of_job(self, job: Job) -> JobPageTexts:
        """Return the texts of a job for its page."""
        return JobPageTexts(
            message=self._session.get(InboxRow, job.inbox_id) if job.inbox_id is not None else None,
            answer=self.answer(job),
            layers=Prompts(self._link, self._now).layers(job.id),
            ahead=self._job_ahead(job),
        )

    def answer(self, job: Job) -> RecordedAnswer | None:
        """Return the answer of a job, or None if the job has none or the answer was deleted."""
        if job.answer_id is None:
            return RecordedAnswer(job.said) if job.said else None
        message = self._session.get(Message, job.answer_id) or self._session.get(ArchivedMessage, job.answer_id)
        return RecordedAnswer(message.content, message.created_at, message.superseded) if message is not None else None

    def _job_ahead(self, job: Job) -> str:
        if job.status is not JobStatus.PENDING or job.lane is None or job.turn is None:
            return ""
        # A waiting job has freed its lane, so it blocks no other job.
        places = (JobStatus.PENDING, JobStatus.RUNNING)
        earlier = select(Job.id).where(Job.lane == job.lane, col(Job.turn) < job.turn, col(Job.status).in_(places))
        return self._first(earlier.order_by(col(Job.turn).desc()).limit(1)) or ""


class JobLists(Repository):
    """Queries for lists of jobs, and for all rows of one job."""

    def jobs(
        self, wanted: JobFilter, after: PageCursor | None, limit: int, without: Sequence[JobFilter] = ()
    ) -> tuple[Sequence[ListedJob], PageCursor | None]:
        """Return up to ``limit`` jobs after a cursor, newest first, and the cursor of the next page.

        The order never changes, so each job is on one page only, whatever happens between two requests. Jobs that match
        a filter in ``without`` are left out.
        """
        left_out = [not_(and_(*conditions(excluded, sifted=True))) for excluded in without]
        earlier = () if after is None else (tuple_(Job.created_at, Job.id) < (after.created_at, after.job_id),)
        listed: Sequence[ListedJob] = ()
        if wanted.q:
            newest = select(Job.id).where(*earlier).order_by(*newest_first()).limit(NEWEST).scalar_subquery()
            others = conditions(wanted.model_copy(update={"q": None}), sifted=True)
            page = select(Job.id).where(col(Job.id).in_(newest), *others, *left_out, job_mentions(wanted.q))
            listed = self._read_page(page, limit)
        if len(listed) <= limit:
            listed = self._read_page(select(Job.id).where(*conditions(wanted, sifted=True), *left_out, *earlier), limit)
        last = listed[limit - 1].job if len(listed) > limit else None
        return listed[:limit], PageCursor(last.created_at, last.id) if last else None

    def _read_page(self, page: SelectOfScalar[str], limit: int) -> Sequence[ListedJob]:
        # A subquery selects the page before the joins: with 100,000 jobs, joining first takes ten times as long.
        chosen = page.order_by(*newest_first()).limit(limit + 1).scalar_subquery()
        rows = self._session.exec(_list_query().where(col(Job.id).in_(chosen)).order_by(*newest_first()))
        return [ListedJob(*row) for row in rows]

    def job(self, job_id: str, cheaper: str = "") -> JobRecord:
        """Return all rows of a job; raises ``NotFound``. ``cheaper`` is the model used when a budget is used up."""
        row = self._first(_list_query().where(Job.id == job_id))
        if row is None:
            raise NotFound(f"job {job_id} does not exist")
        listed, calls = ListedJob(*row), Calls(self._link, self._now).of_job(job_id)
        prompts = Prompts(self._link, self._now)
        return JobRecord(
            listed=listed,
            substitution=self._substitution(listed.job, calls, cheaper),
            steps=StepRecords(self._link, self._now).of_job(job_id),
            calls=calls,
            deliveries=Deliveries(self._link, self._now).of_job(job_id),
            actions=Actions(self._link, self._now).of_job(job_id),
            led_to=[job.id for job in Delegations(self._link, self._now).children_of(job_id)],
            merged=[job.id for job in MergedJobs(self._link, self._now).merged_into([job_id])],
            restarts=self._all(select(Job).where(Job.restarted_from == job_id).order_by(col(Job.created_at))),
            tools=[
                tool_view(run, prompts.beginning(run.arguments), prompts.beginning(run.result))
                for run in ToolRuns(self._link, self._now).of_job(job_id)
            ],
            questions=[
                JobQuestionView.from_row(row, status=row.status_at(self._now))
                for row in self._session.exec(
                    select(Question).where(Question.job_id == job_id).order_by(col(Question.id))
                )
            ],
        )

    def _substitution(self, job: Job, calls: Sequence[LLMCall], cheaper: str) -> Substitution | None:
        answer = final_answer(calls)
        agent = self._session.get(Agent, job.agent_id) if job.agent_id is not None else None
        if answer is None or agent is None:
            return None
        accounts = Accounts(self._link, self._now)
        then = AgentVersions(self._link, self._now).fields_at_moment(agent, answer.started_at) or agent
        limits = accounts.limits(answer.started_at)
        return substitution(calls, FirstChoice(model_for(job, then.model), accounts.all(), limits, cheaper))


def _list_query() -> Any:
    text = func.substr(func.coalesce(InboxRow.content, Job.task), 1, TEXT)
    return (
        select(Job, Agent.slug, InboxRow.user_name, text)
        .add_columns(col(Webhook.path))
        .outerjoin(Agent, col(Agent.id) == Job.agent_id)
        .outerjoin(InboxRow, col(InboxRow.id) == Job.inbox_id)
        .outerjoin(Webhook, col(Webhook.id) == Job.webhook_id)
    )
