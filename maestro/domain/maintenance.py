"""Background work that one process at a time does for all: the export of traces, and retention."""

from datetime import datetime
from enum import StrEnum

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime


class MaintenanceName(StrEnum):
    """The name of a kind of background work."""

    TRACES = "traces"
    RETENTION = "retention"


class MaintenanceTask(SQLModel, table=True):
    """The state of one kind of background work.

    The process ``holder`` does the work until ``held_until``, unless it renews its claim; then any process may take
    over. ``position`` is how far the work has got, in a form of the work's own. ``finished_at`` and ``result`` (JSON)
    describe the last complete round.
    """

    __tablename__ = "maintenance"

    name: str = Field(primary_key=True)
    holder: str = ""
    held_until: datetime = Field(sa_type=UtcDateTime)
    position: str = ""
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    result: str = ""
