"""Questions that a job puts to a person: it waits for the answer outside its lane, days if need be (decision 16)."""

from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, text_of


class QuestionKind(StrEnum):
    """What is asked for: words, or a yes or no to a tool call."""

    QUESTION = "question"
    APPROVAL = "approval"


class QuestionStatus(StrEnum):
    """Where a question stands; an approval is answered with ``answered`` (yes) or ``denied`` (no)."""

    OPEN = "open"
    ANSWERED = "answered"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Question(SQLModel, table=True):
    """One question of one tool call; ``asked_of`` is the user of the job, ``lane`` where an answer counts.

    ``approvers`` are ``platform:userId``, separated by blanks; owners may always approve.
    """

    __tablename__ = "questions"
    __table_args__ = (UniqueConstraint("job_id", "number", "place"),)

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    number: int
    place: int
    agent_id: int | None = Field(default=None, foreign_key="agents.id")
    kind: QuestionKind = Field(sa_type=text_of(QuestionKind))
    status: QuestionStatus = Field(default=QuestionStatus.OPEN, sa_type=text_of(QuestionStatus))
    text: str
    context: str = ""
    tool: str = ""
    lane: str | None = Field(default=None, index=True)
    asked_of: str = ""
    approvers: str = ""
    answer: str = ""
    answered_by: str = ""
    asked_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime)
    answered_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
