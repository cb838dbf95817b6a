"""Tool calls: begun before they act, kept with what came of them."""

from collections.abc import Collection, Mapping, Sequence

from sqlmodel import col, select

from maestro.domain.errors import NotFound
from maestro.domain.llm.prompts import ImageRef
from maestro.domain.tools import INSIDE, ToolPicture, ToolRun, ToolState
from maestro.store.repository import Repository
from maestro.store.steps import Steps


class ToolRuns(Repository):
    """The rows of ``tool_calls``."""

    def of(self, job_id: str) -> Sequence[ToolRun]:
        """Return the calls of a job in the order the model asked for them."""
        return self._session.exec(
            select(ToolRun).where(ToolRun.job_id == job_id).order_by(col(ToolRun.number), col(ToolRun.place))
        ).all()

    def from_outside(self, job_ids: Collection[str]) -> Sequence[str]:
        """Return the names of the tools that brought text from outside into these jobs, in their order."""
        answered = col(ToolRun.state).in_((ToolState.DONE, ToolState.FAILED))
        found = select(ToolRun.tool).where(col(ToolRun.job_id).in_(job_ids), answered, col(ToolRun.tool).not_in(INSIDE))
        return self._session.exec(found.distinct().order_by(col(ToolRun.tool))).all()

    def get(self, job_id: str, number: int, place: int) -> ToolRun:
        """Return a call that must exist; raises ``NotFound``."""
        run = self._session.exec(
            select(ToolRun).where(ToolRun.job_id == job_id, ToolRun.number == number, ToolRun.place == place)
        ).first()
        if run is None:
            raise NotFound(f"job {job_id} has no tool call {place} of answer {number}")
        return run

    def pictures(self, job_id: str) -> Mapping[tuple[int, int], tuple[ImageRef, ...]]:
        """Return the pictures that the calls of a job returned, by the number and the place of the call."""
        rows = self._session.exec(
            select(ToolPicture).where(ToolPicture.job_id == job_id).order_by(col(ToolPicture.seq))
        ).all()
        found: dict[tuple[int, int], tuple[ImageRef, ...]] = {}
        for row in rows:
            image = ImageRef(digest=row.digest, content_type=row.content_type)
            found[row.number, row.place] = (*found.get((row.number, row.place), ()), image)
        return found

    def show(self, run: ToolRun, images: Sequence[ImageRef]) -> None:
        """Keep which pictures a call returned."""
        which = run.model_dump(include={"job_id", "number", "place"})
        self._session.add_all(ToolPicture(**which, seq=seq, **image.model_dump()) for seq, image in enumerate(images))
        self._session.flush()

    def put(self, run: ToolRun) -> ToolRun:
        """Add or change a call."""
        run.finished_at = self._now if run.state.ended else None
        self._session.add(run)
        self._session.flush()
        return run

    def begin(self, run: ToolRun) -> ToolRun:
        """Note that the call is made now; raises ``StepTaken`` where a newer attempt at its step makes it."""
        Steps(self._link, self._now).require_newest()
        run.state = ToolState.STARTED
        run.attempts += 1
        return self.put(run)
