"""Records of tool calls, and the rule by which a repeatedly failing call is not made again."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, text_of

SAME_FAILURES = 3
"""The failures in a row, with the same error, after which the same call is not made again."""

INSIDE = frozenset(
    {
        "ask_question",
        "calculate",
        "chat_get_new",
        "chat_post",
        "get_time",
        "list_files",
        "memory_search",
        "read_file",
        "send_file",
        "write_file",
    }
)
"""The tools whose results are from this installation's users and agents; other tools may return text of outsiders."""

UNKNOWN_OUTCOME = (
    "The outcome of this call is unknown: the process that made it died before it could say. It was not made again, "
    "because making it twice could do harm. Check what it did before you decide what to do next."
)
GIVE_UP = (
    "This very call failed three times in a row in the same way and was not made again. Change the arguments, use "
    "another tool, or answer without it."
)

ONLY_SHOWN = (
    "This call was not made: nobody is answered now, it is only tried out what you would answer, so only tools that "
    "change nothing and need nobody's yes are called. Answer as if the call had been made and you did not know its "
    "outcome yet."
)


class ToolState(StrEnum):
    """The state of a tool call; ``unknown`` means that its process died during the call, which is not repeated."""

    STARTED = "started"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    UNKNOWN = "unknown"

    @property
    def ended(self) -> bool:
        """Whether the result is final."""
        return self not in (ToolState.STARTED, ToolState.WAITING)


class ToolRun(SQLModel, table=True):
    """A tool call of a job, identified by the number of the model call and the index (``place``) in its answer.

    ``arguments`` and ``result`` are digests of stored texts; ``error`` is the error message of a failed call.
    """

    __tablename__ = "tool_calls"
    __table_args__ = (UniqueConstraint("job_id", "number", "place"),)

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    number: int
    place: int
    tool: str
    arguments: str
    state: ToolState = Field(sa_type=text_of(ToolState))
    attempts: int = 0
    result: str = ""
    error: str = ""
    started_at: datetime = Field(sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class ToolPicture(SQLModel, table=True):
    """An image that a tool call returned; the media store has the bytes under ``digest``."""

    __tablename__ = "tool_pictures"
    __table_args__ = (
        UniqueConstraint("job_id", "number", "place", "seq"),
        Index("ix_tool_pictures_digest", "digest"),
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="queue.id")
    number: int
    place: int
    seq: int
    digest: str
    content_type: str


def call_id(number: int, place: int) -> str:
    """Return the id of a tool call in requests to providers."""
    return f"call_{number}_{place}"


def worn_out(earlier: Sequence[ToolRun], wanted: ToolRun) -> bool:
    """Return whether the same call has failed three times in a row with the same error.

    A success or another error resets the count. Calls of other tools, calls with other arguments, and calls that were
    not made do not count.
    """
    same = [
        run
        for run in earlier
        if (run.tool, run.arguments) == (wanted.tool, wanted.arguments)
        and run.state in (ToolState.DONE, ToolState.FAILED)
    ]
    last = same[-SAME_FAILURES:]
    return len(last) == SAME_FAILURES and all(
        run.state is ToolState.FAILED and run.error == last[0].error for run in last
    )
