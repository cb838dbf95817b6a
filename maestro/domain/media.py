"""The files that came with a message, fetched and kept (specification 003, step 7)."""

from sqlmodel import Field, SQLModel, UniqueConstraint


class MediaFile(SQLModel, table=True):
    """One attachment; the bytes are in the media folder under ``digest``, empty when it could not be had.

    ``content_type`` is what the bytes themselves show, ``size`` is in bytes, ``error`` is for operators.
    """

    __tablename__ = "media"
    __table_args__ = (UniqueConstraint("inbox_id", "seq"),)

    id: int | None = Field(default=None, primary_key=True)
    inbox_id: int = Field(foreign_key="inbox.id")
    seq: int
    digest: str = ""
    content_type: str = ""
    filename: str = ""
    size: int = 0
    error: str = ""
