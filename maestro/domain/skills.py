"""Skills: instructions that are given to a model when a message needs them (specification 003, step 9)."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime


class SkillRow(SQLModel, table=True):
    """One skill as it was read from its file; ``enabled`` survives when the file changes.

    ``keywords``, ``patterns`` and ``required_tools`` are JSON lists, ``source`` says where the file is, ``digest`` is
    that of the whole file, ``problem`` why the file cannot be used, empty when it can.
    """

    __tablename__ = "skills"

    slug: str = Field(primary_key=True)
    name: str
    description: str = ""
    category: str = ""
    version: str = ""
    author: str = ""
    keywords: str = "[]"
    patterns: str = "[]"
    required_tools: str = "[]"
    body: str
    source: str
    digest: str
    enabled: bool = True
    updated_at: datetime = Field(sa_type=UtcDateTime)
