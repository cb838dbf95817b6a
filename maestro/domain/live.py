"""Settings that are changed while Maestro runs: every change is a version, and the newest one holds."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, Protocol

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


class SettingsControl(Protocol):
    """What an operator does with settings; ``actor`` is who the audit log says it was."""

    def page(self) -> SettingsPage:
        """Return every key as it holds now."""
        ...

    def change(self, wishes: Mapping[str, JsonValue], version: int | None, actor: str) -> SettingsPage:
        """Set keys by path while Maestro runs, all or none of them; None takes back what was set.

        Raises ``NeedsRestart`` for keys that are read at the start only, ``InvalidEdit`` for values or keys that
        cannot be, and ``Conflict`` when ``version`` is given and no longer the newest.
        """
        ...
