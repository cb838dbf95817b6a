"""Files that agents want to be sent with their answers."""

from collections.abc import Sequence

from sqlalchemy import bindparam
from sqlmodel import col, select

from maestro.domain.deliveries import JobFile
from maestro.store.prepared import Prepared, insert
from maestro.store.repository import Repository


class JobFiles(Repository):
    """All of them, each once in a job."""

    _ADD = Prepared(insert(JobFile).on_conflict_do_nothing())
    _OF_JOB = Prepared(
        select(JobFile)
        .where(col(JobFile.job_id) == bindparam("of_job"))
        .order_by(col(JobFile.number), col(JobFile.place), col(JobFile.id))
    )

    def add(self, file: JobFile) -> None:
        """Keep a file of a job; the same one under the same name once."""
        self._change(self._ADD, **file.model_dump(exclude={"id"}), id=None)

    def of(self, job_id: str) -> Sequence[JobFile]:
        """Return the files of a job as values, in the order in which they were asked for."""
        return self._read_all(self._OF_JOB, JobFile, of_job=job_id)
