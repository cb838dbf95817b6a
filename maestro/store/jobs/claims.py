"""Queries for pending jobs: which jobs the dispatcher claims next, and which jobs are answered together.

See docs/decisions.md: busy agents.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, Integer, and_, bindparam, case, func, insert, inspect, update
from sqlalchemy import select as columns
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Mapped, aliased
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlmodel import col, or_, select

from maestro.domain.agents.agent import Agent, AgentChannel
from maestro.domain.columns import UtcDateTime
from maestro.domain.connectors import BotInstance
from maestro.domain.deliveries import Delivery, DeliveryPurpose, DeliveryState
from maestro.domain.jobs.busy import QueuedMessage
from maestro.domain.jobs.job import OPEN, Job, JobKind, JobStatus, JobStep, StepState
from maestro.domain.llm.budgets import Client
from maestro.domain.messages import Address, InboxRow, LaneKey
from maestro.domain.precedence import (
    ClaimCandidate,
    ClaimOrder,
    Precedence,
    Priority,
    build_precedence,
    is_background_priority,
)
from maestro.store.engine.repository import Repository, read_once
from maestro.store.engine.statements import (
    CHANNEL_KEY,
    PreparedStatement,
    is_in_list,
    is_one_of,
    row_select,
    write_json_list,
)

HOLDS_LANE = (JobStatus.PENDING, JobStatus.RUNNING)

CLAIM_LAPSES = timedelta(seconds=10)
"""The time within which a dispatcher must start a claimed job; a claim older than this lapses."""

FEW = 10
"""The most claimable jobs that are claimed without first counting the jobs that already run."""

LOOKED_AT = 20
"""The number of candidates that are read for each job to claim when many jobs are pending."""

LEAST = Priority.SCHEDULED
"""The number of the lowest priority."""


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A claimed job with its precedence in the fair queue, as far as the precedence is known before routing."""

    job: Job
    precedence: Precedence

    @property
    def id(self) -> str:
        return self.job.id


def _recency_condition(moment: Mapped[Any]) -> ColumnElement[bool]:
    """Return the condition that a time lies between the oldest valid claim and now."""
    return moment.between(bindparam("abandoned_before"), bindparam("now"))


class NextPosition(FunctionElement[int]):
    """The position of a new job, which is last in its lane."""

    type = Integer()
    name = "next_position"
    inherit_cache = True


@compiles(NextPosition)
def _next_position_of_sqlite(_element: NextPosition, _compiler: SQLCompiler, **_options: Any) -> str:
    return "(SELECT coalesce(max(queue.turn), 0) + 1 FROM queue)"


@compiles(NextPosition, "postgresql")
def _next_position_of_postgresql(_element: NextPosition, _compiler: SQLCompiler, **_options: Any) -> str:
    # The highest position may be one that is not yet committed, or one of a release that does not use the sequence.
    return "greatest(nextval('queue_turn_seq'), (SELECT coalesce(max(queue.turn), 0) + 1 FROM queue))"


class Claims(Repository):
    """Queries with which dispatchers find and claim pending jobs."""

    # A running job holds its lane, even if a job with an earlier position resumes meanwhile.
    _HEADS = (
        columns(
            col(Job.lane), func.min(case((col(Job.status) == JobStatus.RUNNING, 0), else_=col(Job.turn))).label("turn")
        )
        .where(is_one_of(col(Job.status), HOLDS_LANE), col(Job.lane).is_not(None))
        .group_by(col(Job.lane))
        .subquery()
    )
    _LEADING = aliased(Job)
    # A job created from another job's answer begins only after that other job has ended.
    _LED_TO = (
        columns(col(_LEADING.id))
        .where(col(_LEADING.id) == col(Job.parent_id), is_one_of(col(_LEADING.status), OPEN))
        .exists()
    )
    UNCLAIMED = (
        col(Job.status) == JobStatus.PENDING,
        or_(
            col(Job.claimed_at).is_(None),
            col(Job.claimed_at) < bindparam("abandoned_before"),
            # A claim with a time in the future does not count: it was made before the clock was set back.
            col(Job.claimed_at) > bindparam("now"),
        ),
    )
    _UNCLAIMED = PreparedStatement(columns(col(Job.id)).where(*UNCLAIMED).limit(1))
    _ITS_TURN = (
        *UNCLAIMED,
        col(Job.priority) <= bindparam("until"),
        or_(col(Job.lane).is_(None), _HEADS.c.turn.is_not(None)),
        or_(col(Job.parent_id).is_(None), ~_LED_TO),
    )
    # Routing sets a job's paying client; before that, the query uses the client of the channel or of the agent.
    _FOUND = (
        columns(col(Job.id), col(Job.priority), col(Client.id).label("payer"), col(Client.weight))
        .add_columns(col(Job.platform), col(Job.account), col(Job.channel), col(Job.turn))
        .outerjoin(_HEADS, (col(Job.lane) == _HEADS.c.lane) & (col(Job.turn) == _HEADS.c.turn))
        .outerjoin(AgentChannel, and_(*(getattr(AgentChannel, name) == getattr(Job, name) for name in CHANNEL_KEY)))
        .outerjoin(
            BotInstance, and_(col(BotInstance.platform) == Job.platform, col(BotInstance.account) == Job.account)
        )
        .outerjoin(Agent, col(Agent.id) == func.coalesce(Job.agent_id, BotInstance.agent_id, AgentChannel.agent_id))
        .outerjoin(Client, col(Client.id) == func.coalesce(Job.client_id, AgentChannel.client_id, Agent.client_id))
        .where(*_ITS_TURN)
    )
    _CANDIDATES = PreparedStatement(_FOUND.order_by(col(Job.priority), col(Job.turn)).limit(bindparam("at_most")))
    _CHANNELS = tuple(case((col(Client.id).is_(None), col(part))) for part in (Job.platform, Job.account, Job.channel))
    _RANKED = _FOUND.add_columns(
        func.row_number()
        .over(partition_by=(col(Job.priority), col(Client.id), *_CHANNELS), order_by=col(Job.turn))
        .label("place")
    ).subquery()
    # Each client or channel gets one job before any gets a second, so a flood in one does not hide others.
    _CROWD = PreparedStatement(
        columns(_RANKED)
        .where(_RANKED.c.place <= bindparam("of_each"))
        .order_by(_RANKED.c.priority, _RANKED.c.place, _RANKED.c.turn)
        .limit(bindparam("at_most"))
    )
    _CLAIMED_LATELY = _recency_condition(col(Job.claimed_at))
    _CLAIMED_IN_TIME = and_(col(Job.status) == JobStatus.PENDING, _CLAIMED_LATELY)
    _STEP = columns(col(JobStep.id)).where(col(JobStep.job_id) == col(Job.id))
    _INSIDE = _STEP.where(col(JobStep.state) == StepState.RUNNING).exists()
    _ENDED_LATELY = _STEP.where(_recency_condition(col(JobStep.finished_at)))
    _MOVES = or_(
        _CLAIMED_LATELY,
        _recency_condition(col(Job.started_at)),
        _ENDED_LATELY.where(col(JobStep.state) == StepState.DONE).exists(),
    )
    _TRIED_AGAIN = _ENDED_LATELY.where(col(JobStep.state) == StepState.FAILED).exists()
    # Running jobs without recent progress do not count: otherwise a few stalled jobs would block all jobs.
    _IN_HAND = PreparedStatement(
        columns(func.count())
        .select_from(Job)
        .where(
            is_one_of(col(Job.status), HOLDS_LANE),
            or_(_CLAIMED_IN_TIME, and_(col(Job.status) == JobStatus.RUNNING, _MOVES, ~_INSIDE, ~_TRIED_AGAIN)),
        )
    )
    _IN_BACKGROUND = PreparedStatement(
        columns(func.count())
        .select_from(Job)
        .where(
            is_one_of(col(Job.status), HOLDS_LANE),
            col(Job.priority) > Priority.MESSAGE,
            or_(col(Job.status) == JobStatus.RUNNING, _CLAIMED_IN_TIME),
        )
    )
    # PostgreSQL skips a job whose row another transaction changes now: it begins without this claim, or it ends.
    _CLAIM = PreparedStatement(
        update(Job)
        .where(
            col(Job.id).in_(
                columns(col(_LEADING.id))
                .where(is_in_list(col(_LEADING.id), "ids"), col(_LEADING.status) == JobStatus.PENDING)
                .with_for_update(skip_locked=True)
            )
        )
        .values(claimed_at=bindparam("now", type_=UtcDateTime), claimed_by=bindparam("owner"))
        .returning(*inspect(Job).columns)
    )
    _NEW = MappingProxyType(
        {name: column.get_default() for name, column in Job.model_fields.items() if not column.is_required()}
    )
    _ENTERED = PreparedStatement(
        insert(Job).values(
            {column.key: bindparam(column.key) for column in inspect(Job).columns if column.key != "turn"}
            | {"turn": NextPosition()}
        )
    )
    _WEIGHT = PreparedStatement(columns(col(Client.weight)).where(col(Client.id) == bindparam("client_id")))

    def list_claimable_jobs(self, limit: int, abandoned_before: datetime) -> list[ClaimCandidate]:
        """Return up to ``limit`` jobs at the head of their lanes that can be claimed, most urgent first.

        A claim from before ``abandoned_before`` does not count, because its dispatcher did not start the job.
        """
        return self._list_candidates(self._CANDIDATES, abandoned_before, at_most=limit, until=LEAST)

    def has_claimable(self, abandoned_before: datetime, background: int) -> bool:
        """Return whether a job can be claimed while at most ``background`` background jobs may run."""
        first = self.list_claimable_jobs(1, abandoned_before)
        return bool(first) and (
            not is_background_priority(first[0].priority) or self._count_background(abandoned_before) < background
        )

    def has_unclaimed(self) -> bool:
        """Return whether a pending job has no claim, whatever the job's position in its lane (queue)."""
        return self._has_row(self._UNCLAIMED, abandoned_before=self._now - CLAIM_LAPSES, now=self._now)

    def is_background_full(self, limit: int) -> bool:
        """Return whether at least ``limit`` background jobs are running, or claimed and about to start."""
        return self._count_background(self._now - CLAIM_LAPSES) >= limit

    def claim_jobs(self, limit: int, abandoned_before: datetime, order: ClaimOrder | None = None) -> list[ClaimedJob]:
        """Claim up to ``limit`` jobs at the head of their lanes, chosen by ``order``, for this dispatcher."""
        order = order or ClaimOrder()
        found = self.list_claimable_jobs(limit + 1, abandoned_before)
        if len(found) > FEW:
            in_hand = int(self._read_value(self._IN_HAND, abandoned_before=abandoned_before, now=self._now))
            limit = min(limit, order.in_hand - in_hand)
        if limit <= 0:
            return []
        in_background = sum(is_background_priority(candidate.priority) for candidate in found)
        room = max(0, order.background - self._count_background(abandoned_before)) if in_background else 0
        # Background jobs come last in ``found``. If ``found`` has one, it also has all claimable jobs of users.
        crowded = room > 0 and (in_background > room or len(found) > limit) if in_background else len(found) > limit
        if order.fair and crowded:
            bounds = {"of_each": limit, "at_most": limit * LOOKED_AT, "until": LEAST if room else Priority.MESSAGE}
            found = self._list_candidates(self._CROWD, abandoned_before, **bounds)
        chosen = order.choose_jobs(found, limit, room)
        if not chosen:
            return []
        ids = write_json_list(one.id for one in chosen)
        rows = self._run_returning(self._CLAIM, ids=ids, now=self._now, owner=order.owner)
        claimed = {job.id: job for job in (self._CLAIM.convert_row(Job, row) for row in rows)}
        return [ClaimedJob(claimed[one.id], one.precedence) for one in chosen if one.id in claimed]

    def add_job(self, **columns: object) -> Job:
        """Add a job with these columns at the end of its lane; return a read-only row without the position.

        This costs a tenth of adding the job as an object of the session.
        """
        job: Job = Job.__new__(Job)
        job.__dict__.update({**self._NEW, **columns}, created_at=self._now, process=self._link.process)
        self._write(self._ENTERED, **job.__dict__)
        return job

    def list_claim_owners(self) -> Sequence[str]:
        """Return the processes whose dispatchers have claimed pending jobs; empty for a claim of no dispatcher."""
        claimed = select(Job.claimed_by).where(Job.status == JobStatus.PENDING, col(Job.claimed_at).is_not(None))
        return self._find_all(claimed.distinct())

    def release_claims_of(self, owners: Collection[str]) -> None:
        """Release the claims of processes that ended; if one still lives, starting a job twice does no harm."""
        pending = update(Job).where(col(Job.status) == JobStatus.PENDING, col(Job.claimed_by).in_(list(owners)))
        self._run_statement(pending.values(claimed_at=None))

    def release_claims(self, ids: Iterable[str]) -> None:
        """Release the claims of jobs that could not be started."""
        pending = update(Job).where(col(Job.id).in_(list(ids)), col(Job.status) == JobStatus.PENDING)
        self._run_statement(pending.values(claimed_at=None))

    def compute_precedence(self, priority: int, client_id: int | None, address: Address) -> Precedence:
        """Return the precedence of a routed job from the job's priority, paying client and address."""
        weight = self._read_value(self._WEIGHT, client_id=client_id) if client_id is not None else None
        return build_precedence(priority, client_id, weight, address)

    def read_precedence(self, job: Job) -> Precedence:
        """Return the precedence of a job that has been routed."""
        return self.compute_precedence(job.priority, job.client_id, job.address)

    def _list_candidates(
        self, statement: PreparedStatement, abandoned_before: datetime, **bounds: int
    ) -> list[ClaimCandidate]:
        rows = self._read_rows(statement, abandoned_before=abandoned_before, now=self._now, **bounds)
        return [ClaimCandidate(*row[: len(ClaimCandidate._fields)]) for row in rows]

    def _count_background(self, abandoned_before: datetime) -> int:
        return int(self._read_value(self._IN_BACKGROUND, abandoned_before=abandoned_before, now=self._now))


class MergedJobs(Repository):
    """Queries for merged jobs: the job named in ``queue.merged_into`` answers their messages."""

    _also_changes = ("Jobs",)

    _ANSWERED = PreparedStatement(
        select(InboxRow)
        .where(
            or_(
                col(InboxRow.id) == bindparam("own"),
                col(InboxRow.id).in_(select(Job.inbox_id).where(Job.merged_into == bindparam("host"))),
            )
        )
        .order_by(col(InboxRow.id))
    )
    _BEHIND = (
        select(Job, InboxRow)
        .join(InboxRow, col(InboxRow.id) == Job.inbox_id)
        .where(
            Job.lane == bindparam("its_lane"), Job.status == JobStatus.PENDING, col(Job.turn) > bindparam("its_turn")
        )
        .order_by(col(Job.turn))
        .limit(bindparam("at_most"))
    )

    def list_answered_messages(self, job: Job) -> Sequence[InboxRow]:
        """Return the messages that a job answers, with those of merged jobs, as read-only rows by arrival."""
        if job.inbox_id is None:
            return ()
        alone = job.kind is not JobKind.MESSAGE or ("none", job.id) in self._cached_values()
        return self._read_answered_messages(job.inbox_id, None if alone else job.id)

    def cache_unmerged(self, job_id: str) -> None:
        """Remember in this transaction that no job is merged into a job, which the caller has read."""
        self._cached_values()[("none", job_id)] = True

    @read_once
    def _read_answered_messages(self, inbox_id: int, host: str | None) -> Sequence[InboxRow]:
        if host is None:
            return self._read_models(row_select(InboxRow, "id"), InboxRow, id=inbox_id)
        return self._read_models(self._ANSWERED, InboxRow, own=inbox_id, host=host)

    def list_pending_after(self, job: Job, limit: int) -> Sequence[QueuedMessage]:
        """Return up to ``limit`` pending jobs after a job in its lane, in order."""
        where = {"its_lane": job.lane, "its_turn": job.turn, "at_most": limit}
        return [QueuedMessage(*row) for row in self._session.exec(self._BEHIND, params=where)]

    def list_open_jobs(self, lane: LaneKey) -> Sequence[QueuedMessage]:
        """Return a lane's open jobs that answer messages, in order; waiting jobs, which hold no lane, are included."""
        messages = select(Job, InboxRow).join(InboxRow, col(InboxRow.id) == Job.inbox_id)
        open_ones = messages.where(Job.lane == lane, col(Job.status).in_(OPEN)).order_by(col(Job.turn))
        return [QueuedMessage(*row) for row in self._session.exec(open_ones)]

    def list_merged_jobs(self, ids: Sequence[str]) -> Sequence[Job]:
        """Return the jobs that are merged into these jobs."""
        return self._session.exec(
            select(Job).where(col(Job.merged_into).in_(ids)).order_by(col(Job.turn)),
            execution_options={"populate_existing": True},
        ).all()

    def merge_jobs(self, ids: Sequence[str], host: str) -> None:
        """Merge these jobs, and the jobs that were merged into them, into the job ``host``."""
        self._run_statement(update(Job).where(col(Job.id).in_(ids)).values(merged_into=host))
        self.merge_followers(ids, host)

    def merge_followers(self, ids: Sequence[str], host: str) -> None:
        """Merge the jobs that were merged into these jobs into the job ``host``."""
        self._run_statement(update(Job).where(col(Job.merged_into).in_(ids)).values(merged_into=host))
        self._run_statement(update(InboxRow).where(col(InboxRow.job_id).in_(ids)).values(job_id=host))

    def undo_merges(self, ids: Sequence[str]) -> None:
        """Undo the merges of these jobs, which ended without being answered by another job."""
        self._run_statement(update(Job).where(col(Job.id).in_(ids)).values(merged_into=None))

    def filter_without_delivery(self, ids: Sequence[str]) -> Sequence[str]:
        """Return the ids of these jobs that have no answer chunk which may have reached the platform."""
        with_delivery = select(Delivery.job_id).where(
            col(Delivery.job_id).in_(ids),
            Delivery.purpose == DeliveryPurpose.ANSWER,
            col(Delivery.state).in_((DeliveryState.SENT, DeliveryState.UNCONFIRMED, DeliveryState.SENDING)),
        )
        delivered = self._find_all(with_delivery)
        return [job_id for job_id in ids if job_id not in delivered]
