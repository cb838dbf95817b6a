"""Logins to the dashboard that somebody ended: their cookies would prove themselves for some hours more."""

from datetime import datetime

from sqlmodel import col, delete, select

from maestro.domain.people.people import EndedLogin
from maestro.store.prepared import insert
from maestro.store.repository import Repository


class Logins(Repository):
    """Only what was ended is written down: a login that goes on needs no row."""

    def end(self, login: str, expires_at: datetime) -> None:
        """Let a login count no more, which two requests may ask for at once; forget those that are over anyway."""
        self._session.exec(delete(EndedLogin).where(col(EndedLogin.expires_at) <= self._now))
        self._session.exec(insert(EndedLogin).values(id=login, expires_at=expires_at).on_conflict_do_nothing())

    def ended(self, login: str) -> bool:
        """Say whether a login was ended."""
        return self._session.exec(select(EndedLogin.id).where(EndedLogin.id == login)).first() is not None
