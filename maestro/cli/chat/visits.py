"""The channels of a terminal's user, stored between calls of the command, so that conversations continue."""

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from maestro.domain.values import Value

MAX_NAME = 40
FOLDER_MODE = 0o700
FILE_MODE = 0o600


class ChatVisit(Value):
    """The state that lets the next connection resume as the same user in the same channel.

    ``last_id`` None means that this terminal has not been in the channel before. ``instance`` is the id of the Maestro
    installation to which the other fields belong.
    """

    url: str
    channel: str
    resume_token: str = ""
    instance: str = ""
    last_id: int | None = None


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for the state of this user's programs."""
    return Path(environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "maestro"


@dataclass(frozen=True)
class VisitFiles:
    """The stored visits of one user; only the user can read the files, as a resume token is as good as a login."""

    folder: Path

    def find(self, url: str, name: str) -> ChatVisit | None:
        """Return the visit stored under this name, with the newest token; an unreadable file counts as missing."""
        visit = _read_visit(self._visit_file(url, name))
        return visit.model_copy(update={"resume_token": self.token(url)}) if visit and visit.url == url else None

    def start(self, url: str, name: str, user: str) -> ChatVisit:
        """Return a visit to the channel ``#CHANNEL``, or to a new channel of the user with ``@AGENT``."""
        if name.startswith("#"):
            return ChatVisit(url=url, channel=name[1:], resume_token=self.token(url))
        visit = ChatVisit(url=url, channel=new_channel(user, name[1:]), resume_token=self.token(url), last_id=0)
        self.save(name, visit)
        return visit

    def token(self, url: str) -> str:
        """Return the newest resume token of this address, if any, so that the user is the same in all channels."""
        dated = []
        for file in self.folder.glob("*.json"):
            with contextlib.suppress(OSError):  # another process may delete the file meanwhile
                dated.append((file.stat().st_mtime_ns, file))
        visits = (_read_visit(file) for _, file in sorted(dated, reverse=True))
        return next((visit.resume_token for visit in visits if visit and visit.url == url and visit.resume_token), "")

    def save(self, name: str, visit: ChatVisit) -> None:
        """Store the visit under this name; if that fails, the next call starts a new channel."""
        file = self._visit_file(visit.url, name)
        fresh = file.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE), "w") as opened:
                opened.write(visit.model_dump_json())
            fresh.replace(file)

    def _visit_file(self, url: str, name: str) -> Path:
        digest = hashlib.sha256(f"{url} {name}".encode()).hexdigest()
        return self.folder / f"{digest[:24]}.json"


def _read_visit(file: Path) -> ChatVisit | None:
    try:
        return ChatVisit.model_validate_json(file.read_text())
    except (OSError, ValidationError):
        return None


def new_channel(user: str, agent: str) -> str:
    """Return a unique channel id that names the user and the agent."""
    parts = ("terminal", re.sub(r"[^A-Za-z0-9._-]+", "-", user)[:MAX_NAME], agent, secrets.token_hex(4))
    return "-".join(filter(None, parts))
