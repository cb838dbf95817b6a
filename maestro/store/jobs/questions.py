"""Queries for the effects of jobs: questions to users, tool calls, and the actions of tags in answers.

See docs/decisions.md: questions.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, func, or_, text, update
from sqlmodel import col, select

from maestro.domain.agents.agent import Agent
from maestro.domain.conducting.conductor import ActionOutcome
from maestro.domain.deliveries import Delivery, DeliveryState
from maestro.domain.errors import Conflict
from maestro.domain.jobs.job import Job
from maestro.domain.llm.prompts import ImageRef
from maestro.domain.messages import LaneKey
from maestro.domain.questions.question import (
    Question,
    QuestionAnswer,
    QuestionKind,
    QuestionStatus,
    question_job_id,
    question_of_job,
)
from maestro.domain.questions.views import MOST_OPEN
from maestro.domain.tags.actions import Action
from maestro.domain.tags.grammar import Tag
from maestro.domain.tools import INTERNAL_TOOLS, ToolPicture, ToolRun, ToolState
from maestro.store.engine.repository import Repository, require_found
from maestro.store.engine.statements import PreparedStatement
from maestro.store.jobs.steps import StepRecords

LATELY = 20_000
"""The number of newest actions of all agents in which the actions of one agent are searched."""


class QuestionRecord(NamedTuple):
    """A question, the slug of the agent that asks, and the job that waits for the answer (None without one)."""

    question: Question
    agent: str | None
    job: Job | None


class Questions(Repository):
    """Queries for questions of agents to users."""

    # SQLite uses the partial index of open questions only if the status is a literal in the SQL, not a parameter.
    _IS_OPEN = text("questions.status = 'open'")
    _OF_NO_JOB = text("questions.job_id IS NULL")
    _OPEN_IN = PreparedStatement(
        select(Question)
        .where(_IS_OPEN, col(Question.lane) == bindparam("its_lane"), col(Question.expires_at) > bindparam("present"))
        .order_by(col(Question.id))
    )
    _OF_KEY = select(Question).where(
        Question.job_id == bindparam("of_job"),
        Question.number == bindparam("its_number"),
        Question.place == bindparam("its_place"),
    )
    _CANCEL = PreparedStatement(
        update(Question)
        .where(col(Question.job_id) == bindparam("of_job"), col(Question.status) == QuestionStatus.OPEN)
        .values(status=QuestionStatus.CANCELLED, answered_at=bindparam("at"))
    )

    def add_question(self, question: Question) -> Question:
        """Add a question of a job; after a resume of the job, open the cancelled question of the tool call again."""
        before = (
            self.find_question_of_tool_call(question.job_id, question.number, question.place)
            if question.job_id is not None
            else None
        )
        if before is not None:
            before.sqlmodel_update(question.model_dump(exclude={"id"}))
        return self._save_objects(before or question)

    def find_question_of_tool_call(self, job_id: str, number: int, call_index: int) -> Question | None:
        """Return the question of a tool call, identified by the number of the model call and an index."""
        key = {"of_job": job_id, "its_number": number, "its_place": call_index}
        return self._session.exec(self._OF_KEY, params=key).first()

    def add_outside_question(self, question: Question) -> Question:
        """Store a question of an external agent, or return the same question if it is open or answered.

        Raises ``Conflict`` when the agent has too many open questions.
        """
        waiting = (self._IS_OPEN, col(Question.expires_at) > self._now)
        own = (self._OF_NO_JOB, Question.agent_id == question.agent_id)
        lasting = or_(and_(*waiting), col(Question.status) == QuestionStatus.ANSWERED)
        alike = select(Question).where(*own, Question.text == question.text, Question.context == question.context)
        before = self._find_first(alike.where(lasting).order_by(col(Question.id).desc()).limit(1))
        if before is not None:
            return before
        if self._session.exec(select(func.count()).select_from(Question).where(*own, *waiting)).one() >= MOST_OPEN:
            raise Conflict(f"{MOST_OPEN} questions of this agent are open; ask one of them again to get its answer")
        return self._save_objects(question)

    def find_question(self, question_id: int) -> Question | None:
        """Return the question with this id, or None if there is none."""
        return self._session.get(Question, question_id)

    def get_question(self, question_id: int) -> QuestionRecord:
        """Return a question with the slug of its agent and its job; raises ``NotFound``."""
        row = self._find_first(_records_query().where(Question.id == question_id))
        return QuestionRecord(*require_found(row, f"there is no question {question_id}"))

    def list_open_questions(self, lane: LaneKey) -> Sequence[Question]:
        """Return the open questions of a lane as read-only rows, oldest first."""
        return self._read_models(self._OPEN_IN, Question, its_lane=lane, present=self._now)

    def filter_possibly_delivered(self, waiting: Sequence[Question]) -> Sequence[Question]:
        """Return those of the given questions that users may have received, and so can answer."""
        may_have_arrived = (DeliveryState.SENDING, DeliveryState.SENT, DeliveryState.UNCONFIRMED)
        condition = col(Delivery.state).in_(may_have_arrived)
        return [question for question in waiting if self._sent_condition(question, condition)]

    def find_delivered_as(self, waiting: Sequence[Question], platform_message_id: str) -> Question | None:
        """Return the one of the given questions that was sent as this platform message, or None."""
        known = col(Delivery.platform_message_id) == platform_message_id
        return next((question for question in waiting if self._sent_condition(question, known)), None)

    def find_question_of_notice(self, job_id: str) -> Question | None:
        """Return the question that a job sends to users; None for a job that sends no question."""
        number = question_of_job(job_id)
        return self.find_question(number) if number is not None else None

    def record_answer(self, answer: QuestionAnswer, by: str, inbox_id: int | None = None) -> bool:
        """Store a user's answer to a question; return false if the question is no longer open."""
        status = QuestionStatus.DENIED if answer.approves is False else QuestionStatus.ANSWERED
        still_open = (self._IS_OPEN, col(Question.id) == answer.question.id, col(Question.expires_at) > self._now)
        values = {"status": status, "answer": answer.words, "answered_by": by, "inbox_id": inbox_id}
        answered = update(Question).where(*still_open).values(**values, answered_at=self._now)
        return self._run_statement(answered).rowcount > 0

    def find_last_answer(self, job_id: str) -> int | None:
        """Return the inbox id of the last text message that answered a question of a job, or None."""
        answers = select(func.max(Question.inbox_id)).where(
            Question.job_id == job_id, Question.kind == QuestionKind.QUESTION
        )
        last: int | None = self._run_statement(answers).scalar_one()
        return last

    def cancel_open_questions(self, job_id: str) -> None:
        """Cancel the open questions of a job that has ended."""
        self._write(self._CANCEL, of_job=job_id, at=self._now)

    def list_question_page(
        self, statuses: Sequence[QuestionStatus], before: int | None, limit: int
    ) -> tuple[Sequence[QuestionRecord], int | None]:
        """Return up to ``limit`` questions with ids below ``before``, newest first, and the id for the next page.

        With ``statuses``, only questions in one of these statuses are returned.
        """
        page = _records_query().order_by(col(Question.id).desc()).limit(limit + 1)
        if before is not None:
            page = page.where(col(Question.id) < before)
        if statuses:
            page = page.where(or_(*map(self._status_condition, statuses)))
        records = [QuestionRecord(*row) for row in self._session.exec(page)]
        return records[:limit], records[limit - 1].question.id if len(records) > limit else None

    def list_waiting_questions(self, limit: int) -> Sequence[QuestionRecord]:
        """Return up to ``limit`` open questions, oldest first."""
        waiting = (self._IS_OPEN, col(Question.expires_at) > self._now)
        query = _records_query().where(*waiting).order_by(col(Question.id)).limit(limit)
        return [QuestionRecord(*row) for row in self._session.exec(query)]

    def count_open(self, limit: int) -> int:
        """Count the open questions; stop counting at ``limit``."""
        waiting = select(Question.id).where(self._IS_OPEN, col(Question.expires_at) > self._now).limit(limit)
        return int(self._run_statement(select(func.count()).select_from(waiting.subquery())).scalar_one())

    def _sent_condition(self, question: Question, delivery_condition: ColumnElement[bool]) -> bool:
        """Return whether a question was sent in a chunk that meets a condition."""
        of_question = col(Delivery.job_id).between(question_job_id(question, ""), question_job_id(question, "~"))
        return self._has_any(select(Delivery.id).where(of_question, delivery_condition))

    def _status_condition(self, status: QuestionStatus) -> ColumnElement[bool]:
        """Return the SQL condition for questions in a status, equivalent to ``Question.status_at``."""
        over = and_(col(Question.status) == QuestionStatus.OPEN, col(Question.expires_at) <= self._now)
        if status is QuestionStatus.OPEN:
            return and_(col(Question.status) == status, col(Question.expires_at) > self._now)
        if status is QuestionStatus.EXPIRED:
            return or_(col(Question.status) == status, over)
        return col(Question.status) == status


def _records_query() -> Any:
    return (
        select(Question, Agent.slug, Job)
        .outerjoin(Job, col(Job.id) == Question.job_id)
        .outerjoin(Agent, col(Agent.id) == Question.agent_id)
    )


class Actions(Repository):
    """Queries for actions: the outcomes of tags (marked passages) in answers."""

    def add_outcomes(self, job_id: str, performed: Sequence[tuple[Tag, ActionOutcome]]) -> None:
        """Store the outcome of each tag in a job's answer, in the order of the tags."""
        self._session.add_all(
            Action(
                job_id=job_id,
                seq=seq,
                tag=tag.name,
                subject=outcome.subject,
                state=outcome.state,
                detail=outcome.detail,
                at=self._now,
            )
            for seq, (tag, outcome) in enumerate(performed)
        )
        self._session.flush()

    def list_actions_of_job(self, job_id: str) -> Sequence[Action]:
        """Return the outcomes of the tags in a job's answer, in the order of the tags."""
        return self._find_all(select(Action).where(Action.job_id == job_id).order_by(col(Action.seq)))

    def list_latest_actions(self, agent: Agent, limit: int) -> Sequence[Action]:
        """Return an agent's latest tag outcomes, newest first; older ones than ``LATELY`` actions are not found."""
        oldest = select(func.coalesce(func.max(Action.id), 0) - LATELY).scalar_subquery()
        of_agent = select(Action).join(Job, col(Job.id) == Action.job_id).where(Job.agent_id == agent.id)
        return self._find_all(of_agent.where(col(Action.id) > oldest).order_by(col(Action.id).desc()).limit(limit))


class ToolRuns(Repository):
    """Queries for the tool calls of jobs."""

    def list_tool_runs_of_job(self, job_id: str) -> Sequence[ToolRun]:
        """Return the tool calls of a job in the order in which the model made them."""
        return self._find_all(
            select(ToolRun).where(ToolRun.job_id == job_id).order_by(col(ToolRun.number), col(ToolRun.place))
        )

    def filter_with_outside_text(self, job_ids: Collection[str]) -> Sequence[str]:
        """Return the sorted names of the tools that gave these jobs content from outside Maestro."""
        answered = col(ToolRun.state).in_((ToolState.DONE, ToolState.FAILED))
        outside = col(ToolRun.tool).not_in(INTERNAL_TOOLS)
        tools = select(ToolRun.tool).where(col(ToolRun.job_id).in_(job_ids), answered, outside)
        return self._find_all(tools.distinct().order_by(col(ToolRun.tool)))

    def get_tool_run(self, job_id: str, number: int, call_index: int) -> ToolRun:
        """Return a tool call by the number of its model call and its index in that call; raises ``NotFound``."""
        return require_found(
            self._find_first(
                select(ToolRun).where(ToolRun.job_id == job_id, ToolRun.number == number, ToolRun.place == call_index)
            ),
            f"job {job_id} has no tool call {call_index} in the answer of model call {number}",
        )

    def list_images(self, job_id: str) -> Mapping[tuple[int, int], tuple[ImageRef, ...]]:
        """Return the images that a job's tool calls returned, by the number of the model call and the index."""
        rows = self._find_all(select(ToolPicture).where(ToolPicture.job_id == job_id).order_by(col(ToolPicture.seq)))
        images: dict[tuple[int, int], tuple[ImageRef, ...]] = {}
        for row in rows:
            image = ImageRef(digest=row.digest, content_type=row.content_type)
            images[row.number, row.place] = (*images.get((row.number, row.place), ()), image)
        return images

    def store_images(self, run: ToolRun, images: Sequence[ImageRef]) -> None:
        """Store the images that a tool call returned, so that later model calls can show them to the model."""
        which = run.model_dump(include={"job_id", "number", "place"})
        self._session.add_all(ToolPicture(**which, seq=seq, **image.model_dump()) for seq, image in enumerate(images))
        self._session.flush()

    def save_tool_run(self, run: ToolRun) -> ToolRun:
        """Insert or update a tool call."""
        run.finished_at = self._now if run.state.ended else None
        return self._save_objects(run)

    def begin_tool_run(self, run: ToolRun) -> ToolRun:
        """Record that a tool is about to be called; raises ``StepTaken`` when a newer attempt has begun."""
        StepRecords(self._link, self._now).require_newest()
        run.state = ToolState.STARTED
        run.attempts += 1
        return self.save_tool_run(run)
