"""Settings that are changed while Maestro runs: every change is a version, and the newest one holds."""

from datetime import datetime
from typing import Literal

from pydantic import JsonValue
from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime
from maestro.domain.values import View

RUNTIME = "runtime"
"""Where a value comes from that was set while Maestro runs."""


class SettingsVersion(SQLModel, table=True):
    """All values set at run time as of one change; ``values_json`` is a JSON object by key, as ``chat.pollMs``."""

    __tablename__ = "settings_versions"

    version: int | None = Field(default=None, primary_key=True)
    values_json: str
    actor: str
    changed_at: datetime = Field(sa_type=UtcDateTime)


class SettingView(View):
    """One key: the value that holds, where it comes from, and what it may be.

    ``origin`` is ``default``, ``file``, ``environment``, ``command line`` or ``runtime``. ``changes`` is ``live`` for a
    key that can be set while Maestro runs, else ``restart``. Of a secret only the last characters are shown, or that it
    is set. ``problem`` says why a value that was set at run time does not count.
    """

    key: str
    value: JsonValue
    default: JsonValue
    origin: str
    changes: Literal["live", "restart"]
    type: str
    limits: str
    choices: tuple[str, ...]
    description: str
    variable: str
    problem: str = ""


class SettingsPage(View):
    """All keys; ``version`` grows with each change at run time, ``file`` is the configuration that was read."""

    items: tuple[SettingView, ...]
    version: int
    file: str
