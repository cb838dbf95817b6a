"""Questions of jobs in a store, written as a tool call writes them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from maestro.domain.errors import WaitReason
from maestro.domain.jobs.job import Wait
from maestro.domain.questions.question import Question, QuestionKind, choices_json
from tests.support.job_rows import JobRows

ARGUMENTS = '{"path": "report.txt"}'
EXPIRY = timedelta(days=3650)
"""Long, for commands go by the clock of the machine and not by the rows' own."""


def waiting_question(rows: JobRows, text: str = "Which colour?", choices: Sequence[str] = ()) -> Question:
    """Have a job of ada's ask its user, u-1, and wait for the answer."""
    return _waits(rows, QuestionKind.QUESTION, text=text, asked_of="u-1", choices=choices_json(choices))


def waiting_approval(rows: JobRows, tool: str = "write_file") -> Question:
    """Have a job of ada's wait for an owner's or web:alan's yes to a tool call."""
    text = f"May I call the tool {tool}?"
    return _waits(rows, QuestionKind.APPROVAL, text=text, context=ARGUMENTS, tool=tool, approvers="web:alan")


def _waits(rows: JobRows, kind: QuestionKind, **asked: Any) -> Question:
    job_id = rows.add()
    with rows.store.begin() as tx:
        job = tx.jobs.get(job_id)
        tx.jobs.mark_started(job_id)
        tx.jobs.park_job(job_id, Wait(reason=WaitReason.PERSON, wake_at=tx.now + EXPIRY))
        return tx.jobs.questions.add_question(
            Question(
                job_id=job_id,
                number=1,
                place=0,
                agent_id=job.agent_id,
                kind=kind,
                lane=job.lane,
                asked_at=tx.now,
                expires_at=tx.now + EXPIRY,
                **asked,
            )
        )
