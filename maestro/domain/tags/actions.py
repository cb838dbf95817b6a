"""Actions: the recorded outcomes of the tags in an answer, one row per tag, shown to users and operators."""

from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, text_of


class ActionState(StrEnum):
    """The outcome of a tag.

    ``refused``: the user or the agent lacks the permission. ``failed``: the tag could not be executed as
    written.
    """

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


KEPT_AS = "kept as "
"""The prefix of a fact's detail if the tag names an unknown category, so that the nearest one was used."""


def needs_report(state: ActionState, detail: str) -> bool:
    """Return whether the outcome of a tag differs from what its agent wrote, so that the agent must be informed."""
    return state is not ActionState.DONE or detail.startswith(KEPT_AS)


class Action(SQLModel, table=True):
    """The outcome of one tag of a job's answer.

    ``seq`` is the tag's position in the answer; ``detail`` is the sentence shown to users.
    """

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
