"""Settings that are changed while Maestro runs: every change is a version, and the newest one holds."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime


class SettingsVersion(SQLModel, table=True):
    """All values set at run time as of one change; ``values_json`` is a JSON object by key, as ``chat.enabled``."""

    __tablename__ = "settings_versions"

    version: int | None = Field(default=None, primary_key=True)
    values_json: str
    actor: str
    changed_at: datetime = Field(sa_type=UtcDateTime)
