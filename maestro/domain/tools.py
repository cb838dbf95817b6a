"""Records of tool calls, and the rule by which a repeatedly failing call is not made again."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from maestro.domain.columns import UtcDateTime, enum_column_type

SAME_FAILURES = 3
"""The number of failures in a row, with the same error, after which the same tool call is not made again."""

INTERNAL_TOOLS = frozenset(
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
    "The outcome of this call is unknown: the process died before the result was stored. The call was not repeated, "
    "because a second call could do harm. Check the effect of the call before you decide what to do next."
)
FAILED_REPEATEDLY = (
    "This call failed three times in a row with the same error and was not repeated. Change the arguments, use "
    "another tool, or answer without it."
)

NOT_MADE_IN_WHAT_IF = (
    "This call was not made: your answer is only a trial that no user gets, so only tools that change nothing and need "
    "no approval are called. Answer as if the call had been made and you did not know its outcome yet."
)


class ToolState(StrEnum):
    """The state of a tool call; ``unknown``: the process died during the call, and the call is not repeated."""

    STARTED = "started"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    UNKNOWN = "unknown"

    @property
    def ended(self) -> bool:
        """Whether the tool call has a final result."""
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
    state: ToolState = Field(sa_type=enum_column_type(ToolState))
    attempts: int = 0
    result: str = ""
    error: str = ""
    started_at: datetime = Field(sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class ToolPicture(SQLModel, table=True):
    """An image that a tool call returned; the media store has the bytes under ``digest``."""

    __tablename__ = "tool_pictures"
    __table_args__ = (UniqueConstraint("job_id", "number", "place", "seq"), Index("ix_tool_pictures_digest", "digest"))

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


def has_failed_repeatedly(earlier: Sequence[ToolRun], call: ToolRun) -> bool:
    """Return whether the same call has failed three times in a row with the same error.

    A success or another error resets the count. Calls of other tools, calls with other arguments, and calls that were
    not made do not count.
    """
    outcomes = [
        (run.state, run.error)
        for run in earlier
        if (run.tool, run.arguments) == (call.tool, call.arguments) and run.state in (ToolState.DONE, ToolState.FAILED)
    ][-SAME_FAILURES:]
    return len(outcomes) == SAME_FAILURES and set(outcomes) == {(ToolState.FAILED, outcomes[0][1])}
