"""Files that agents want to be sent with their answers."""

from collections.abc import Sequence

from sqlalchemy.dialects.sqlite import insert
from sqlmodel import col, select

from maestro.domain.deliveries import JobFile
from maestro.store.repository import Repository


class JobFiles(Repository):
    """All of them, each once in a job."""

    def add(self, file: JobFile) -> None:
        """Keep a file of a job; the same one under the same name once."""
        self._run(insert(JobFile).values(**file.model_dump(exclude={"id"})).on_conflict_do_nothing())

    def of(self, job_id: str) -> Sequence[JobFile]:
        """Return the files of a job in the order in which they were asked for."""
        order = (col(JobFile.number), col(JobFile.place), col(JobFile.id))
        return self._session.exec(select(JobFile).where(JobFile.job_id == job_id).order_by(*order)).all()
