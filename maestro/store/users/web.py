"""Queries for web users (tickets, channels, uploads and ended logins), and for states of connectors.

See docs/decisions.md: web identity.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete
from sqlmodel import col, select

from maestro.domain.messages import Address
from maestro.domain.people.people import ChannelOwner, ConnectorStatus, EndedLogin, UploadedFile, WebTicket
from maestro.store.engine.repository import Repository
from maestro.store.engine.statements import CHANNEL_KEY, PreparedStatement, insert


class WebUsers(Repository):
    """Queries for tickets, channels and uploads of web users, and for states of connectors."""

    _STATUS = insert(ConnectorStatus)
    _EVENT = PreparedStatement(
        _STATUS.on_conflict_do_update(
            index_elements=["platform", "account"],
            set_={"last_event_at": _STATUS.excluded.last_event_at, "lag_seconds": _STATUS.excluded.lag_seconds},
        )
    )

    def add_ticket(self, ticket: str, user: tuple[str, str, str], lifetime: timedelta) -> None:
        """Store the digest of a login ticket for a user, given as id, name and role."""
        user_id, user_name, role = user
        self._session.exec(delete(WebTicket).where(col(WebTicket.expires_at) < self._now))
        self._session.add(
            WebTicket(
                digest=_ticket_digest(ticket),
                user_id=user_id,
                user_name=user_name,
                role=role,
                expires_at=self._now + lifetime,
            )
        )

    def take_ticket(self, ticket: str) -> WebTicket | None:
        """Use up a login ticket; return None if it is unknown, used or expired."""
        row = self._session.get(WebTicket, _ticket_digest(ticket))
        if row is None:
            return None
        self._session.delete(row)
        return row if row.expires_at > self._now else None

    def claim_channel(self, address: Address, user_id: str) -> bool:
        """Make a user the owner of a channel without an owner; return whether the user owns the channel now."""
        values = {"user_id": user_id, "opened_at": self._now, **address.model_dump(include=set(CHANNEL_KEY))}
        self._session.exec(insert(ChannelOwner).values(**values).on_conflict_do_nothing())
        owner = self._session.get(ChannelOwner, (address.platform, address.account, address.channel))
        return owner is not None and owner.user_id == user_id

    def add_upload(self, upload: UploadedFile) -> None:
        """Store the record of an uploaded file."""
        self._session.add(upload)

    def uploads(self, ids: Sequence[str]) -> dict[str, UploadedFile]:
        """Return the uploaded files with these ids, by id."""
        rows = self._all(select(UploadedFile).where(col(UploadedFile.id).in_(ids)))
        return {row.id: row for row in rows}

    def connector_state(self, platform: str, account: str, state: str, detail: str, *, trouble: bool = False) -> None:
        """Store the state that a connector reports; with ``trouble``, ``detail`` is also its last error."""
        status = self.status(platform, account)
        status.state, status.detail, status.changed_at = state, detail, self._now
        if trouble:
            status.last_error, status.last_error_at = detail, self._now
        self._session.flush()

    def connector_event(self, platform: str, account: str, lag: timedelta) -> None:
        """Record that a connector received an event now, and how old the event was."""
        status = _starting_status(platform, account, self._now)
        status.last_event_at, status.lag_seconds = self._now, lag.total_seconds()
        self._change(self._EVENT, **vars(status))

    def status(self, platform: str, account: str) -> ConnectorStatus:
        """Return the last reported state of a connector; before its first report, a connector is starting."""
        status = self._session.get(ConnectorStatus, (platform, account))
        if status is None:
            status = _starting_status(platform, account, self._now)
            self._session.add(status)
        return status

    def connectors(self) -> Sequence[ConnectorStatus]:
        """Return the last reported states of all connectors."""
        return self._all(select(ConnectorStatus).order_by(ConnectorStatus.platform, ConnectorStatus.account))


def _starting_status(platform: str, account: str, now: datetime) -> ConnectorStatus:
    return ConnectorStatus(platform=platform, account=account, state="starting", changed_at=now)


def _ticket_digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()


class EndedLogins(Repository):
    """Queries for logins that ended before their expiry; a valid login has no row."""

    def end(self, login: str, expires_at: datetime) -> None:
        """Record that a login has ended, and delete expired records; a repeated call has no effect."""
        self._session.exec(delete(EndedLogin).where(col(EndedLogin.expires_at) <= self._now))
        self._session.exec(insert(EndedLogin).values(id=login, expires_at=expires_at).on_conflict_do_nothing())

    def ended(self, login: str) -> bool:
        """Return whether a login has ended before its expiry."""
        return self._first(select(EndedLogin.id).where(EndedLogin.id == login)) is not None
