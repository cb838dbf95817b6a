"""Queries for the effects of jobs: the actions of tags in answers, and tool calls."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import func
from sqlmodel import col, select

from maestro.domain.agents.agent import Agent
from maestro.domain.conducting.conductor import ActionOutcome
from maestro.domain.jobs.job import Job
from maestro.domain.llm.prompts import ImageRef
from maestro.domain.tags.actions import Action
from maestro.domain.tags.grammar import Tag
from maestro.domain.tools import INTERNAL_TOOLS, ToolPicture, ToolRun, ToolState
from maestro.store.engine.repository import Repository, required
from maestro.store.jobs.steps import StepRecords

LATELY = 20_000
"""The number of newest actions, of all agents, that are searched for the actions of one agent."""


class Actions(Repository):
    """Queries for the actions of tags in answers."""

    def add(self, job_id: str, performed: Sequence[tuple[Tag, ActionOutcome]]) -> None:
        """Store the outcome of each tag in a job's answer, in the order of the answer."""
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

    def of_job(self, job_id: str) -> Sequence[Action]:
        """Return the outcomes of the tags in a job's answer, in the order of the answer."""
        return self._all(select(Action).where(Action.job_id == job_id).order_by(col(Action.seq)))

    def latest(self, agent: Agent, limit: int) -> Sequence[Action]:
        """Return an agent's latest outcomes of tags, newest first, among the newest ``LATELY`` of all agents."""
        oldest = select(func.coalesce(func.max(Action.id), 0) - LATELY).scalar_subquery()
        of_agent = select(Action).join(Job, col(Job.id) == Action.job_id).where(Job.agent_id == agent.id)
        return self._all(of_agent.where(col(Action.id) > oldest).order_by(col(Action.id).desc()).limit(limit))


class ToolRuns(Repository):
    """Queries for the tool calls of jobs."""

    def of_job(self, job_id: str) -> Sequence[ToolRun]:
        """Return the tool calls of a job in the order in which the model made them."""
        return self._all(
            select(ToolRun).where(ToolRun.job_id == job_id).order_by(col(ToolRun.number), col(ToolRun.place))
        )

    def from_outside(self, job_ids: Collection[str]) -> Sequence[str]:
        """Return the sorted names of the tools that gave these jobs content from outside Maestro."""
        answered = col(ToolRun.state).in_((ToolState.DONE, ToolState.FAILED))
        outside = col(ToolRun.tool).not_in(INTERNAL_TOOLS)
        tools = select(ToolRun.tool).where(col(ToolRun.job_id).in_(job_ids), answered, outside)
        return self._all(tools.distinct().order_by(col(ToolRun.tool)))

    def get(self, job_id: str, number: int, place: int) -> ToolRun:
        """Return a tool call by the number of its model call and its index there; raises ``NotFound``."""
        return required(
            self._first(
                select(ToolRun).where(ToolRun.job_id == job_id, ToolRun.number == number, ToolRun.place == place)
            ),
            f"job {job_id} has no tool call {place} in the answer of model call {number}",
        )

    def pictures(self, job_id: str) -> Mapping[tuple[int, int], tuple[ImageRef, ...]]:
        """Return the images that a job's tool calls returned, by number of the model call and index."""
        rows = self._all(select(ToolPicture).where(ToolPicture.job_id == job_id).order_by(col(ToolPicture.seq)))
        images: dict[tuple[int, int], tuple[ImageRef, ...]] = {}
        for row in rows:
            image = ImageRef(digest=row.digest, content_type=row.content_type)
            images[row.number, row.place] = (*images.get((row.number, row.place), ()), image)
        return images

    def store_images(self, run: ToolRun, images: Sequence[ImageRef]) -> None:
        """Store the images that a tool call returned, for the model to see."""
        which = run.model_dump(include={"job_id", "number", "place"})
        self._session.add_all(ToolPicture(**which, seq=seq, **image.model_dump()) for seq, image in enumerate(images))
        self._session.flush()

    def put(self, run: ToolRun) -> ToolRun:
        """Insert or update a tool call."""
        run.finished_at = self._now if run.state.ended else None
        return self._save(run)

    def begin(self, run: ToolRun) -> ToolRun:
        """Record that a tool is about to be called; raises ``StepTaken`` when a newer attempt has begun."""
        StepRecords(self._link, self._now).require_newest()
        run.state = ToolState.STARTED
        run.attempts += 1
        return self.put(run)
