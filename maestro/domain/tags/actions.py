"""What came of the tags in an answer, one row each: people are told, and operators can see."""

from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, text_of


class ActionState(StrEnum):
    """``refused``: the requester or the agent may not; ``failed``: it could not be done as it was written."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


KEPT_AS = "kept as "
"""How the detail of a fact begins whose category was none."""


def is_news(state: ActionState, detail: str) -> bool:
    """Say whether something else came of a tag than what its agent wrote."""
    return state is not ActionState.DONE or detail.startswith(KEPT_AS)


class Action(SQLModel, table=True):
    """What one tag of a job's answer led to; ``seq`` is its place in the answer, ``detail`` what people are told."""

    __tablename__ = "actions"
    __table_args__ = (UniqueConstraint("job_id", "seq"),)

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    seq: int
    tag: str
    subject: str = ""
    state: ActionState = Field(sa_type=text_of(ActionState))
    detail: str = ""
    at: datetime = Field(sa_type=UtcDateTime)
