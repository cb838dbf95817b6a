"""Queries for users: owners, known users, pairings, invitations and web users, and for states of connectors.

See docs/decisions.md: access.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import bindparam, delete, func, tuple_
from sqlmodel import col, select

from maestro.domain.messages import Address
from maestro.domain.people.people import (
    KEPT_AFTER_EXPIRY,
    AuditEntry,
    ChannelOwner,
    ConnectorStatus,
    EndedLogin,
    Invitation,
    KnownPerson,
    Owner,
    Pairing,
    PairingStatus,
    PersonId,
    UploadedFile,
    WebTicket,
    normalize_code,
)
from maestro.store.engine.repository import LazyRepository, Repository, require_found
from maestro.store.engine.statements import CHANNEL_KEY, PreparedStatement, equals_parameters, insert
from maestro.store.users.clients import PayingClients

WRONG_CODE = "pairing.wrong_code"


class Owners(Repository):
    """Queries for owners: users who may talk to every agent and approve everything."""

    _HAS = PreparedStatement(select(Owner.user_id).where(equals_parameters(Owner, *PersonId._fields)))

    def list_owners(self) -> Sequence[Owner]:
        """Return all owners, sorted by platform and user id."""
        return self._find_all(select(Owner).order_by(col(Owner.platform), col(Owner.user_id)))

    def is_owner(self, person: PersonId) -> bool:
        """Return whether this user is an owner."""
        return self._has_row(self._HAS, **person._asdict())

    def add_owner(self, person: PersonId, actor: str) -> bool:
        """Make a user an owner; return false if the user already is one."""
        if self.is_owner(person):
            return False
        self._save_objects(Owner(**person._asdict(), added_at=self._now, added_by=actor))
        return True

    def remove_owner(self, person: PersonId) -> bool:
        """Remove an owner; return false if the user is not an owner."""
        owner = self._session.get(Owner, (person.platform, person.user_id))
        if owner is None:
            return False
        self._delete_object(owner)
        return True


class Pairings(Repository):
    """Queries for known users, pairing requests (by which unknown users ask for access) and invitations."""

    _KNOWN = PreparedStatement(select(KnownPerson.user_id).where(equals_parameters(KnownPerson, *PersonId._fields)))
    _WAITING = PreparedStatement(
        select(func.count())
        .select_from(Pairing)
        .where(Pairing.status == PairingStatus.PENDING, col(Pairing.expires_at) > bindparam("now"))
    )

    def is_known(self, person: PersonId) -> bool:
        """Return whether an operator gave this user access."""
        return self._has_row(self._KNOWN, **person._asdict())

    def grant_access(self, person: PersonId, user_name: str, actor: str) -> bool:
        """Give a user access; return false if the user already has access."""
        if self.is_known(person):
            return False
        self._save_objects(KnownPerson(**person._asdict(), user_name=user_name, added_at=self._now, added_by=actor))
        return True

    def revoke_access(self, person: PersonId) -> bool:
        """Take away a user's access; return false if the user had none."""
        access = delete(KnownPerson).where(equals_parameters(KnownPerson, *PersonId._fields))
        return self._run_statement(access, **person._asdict()).rowcount > 0

    def list_known_users(self, after: PersonId | None, limit: int) -> Sequence[KnownPerson]:
        """Return up to ``limit`` known users after the user ``after``, sorted by platform and user id."""
        page = select(KnownPerson).order_by(col(KnownPerson.platform), col(KnownPerson.user_id)).limit(limit)
        if after is not None:
            page = page.where(tuple_(KnownPerson.platform, KnownPerson.user_id) > tuple(after))
        return self._find_all(page)

    def find_newest(self, person: PersonId) -> Pairing | None:
        """Return the newest pairing request of a user, in any status, or None."""
        theirs = select(Pairing).where(Pairing.platform == person.platform, Pairing.user_id == person.user_id)
        return self._find_first(theirs.order_by(col(Pairing.id).desc()).limit(1))

    def count_pending(self) -> int:
        """Count the open pairing requests."""
        return int(self._read_value(self._WAITING, now=self._now))

    def list_pending_pairings(self) -> Sequence[Pairing]:
        """Return the open pairing requests, oldest first, at most ``MOST_PENDING``."""
        pending = select(Pairing).where(Pairing.status == PairingStatus.PENDING, col(Pairing.expires_at) > self._now)
        return self._find_all(pending.order_by(col(Pairing.id)))

    def add_pairing(self, pairing: Pairing) -> Pairing:
        """Store a pairing request, in place of a pending one of the same user.

        Requests are deleted only long after they expired, so that a recent number never refers to another user.
        """
        older = self.find_newest(PersonId(pairing.platform, pairing.user_id))
        if older is not None and older.status is PairingStatus.PENDING:
            pairing.id = older.id
        stored = self._session.merge(pairing)
        self._session.flush()
        long_ago = col(Pairing.expires_at) <= self._now - KEPT_AFTER_EXPIRY
        self._run_statement(delete(Pairing).where(col(Pairing.status) == PairingStatus.PENDING, long_ago))
        return stored

    def record_sent_code(self, pairing: Pairing, address: Address) -> None:
        """Record that a user's pairing code was sent again, and to which channel."""
        pairing.told_at, pairing.account, pairing.channel = self._now, address.account, address.channel
        self._session.add(pairing)

    def find_by_number_or_code(self, text: str) -> Pairing:
        """Return the pairing request with this number or code; raises ``NotFound``."""
        condition = Pairing.code == normalize_code(text)
        if text.isascii() and text.isdecimal() and len(text) < len("99999999"):
            condition = Pairing.id == int(text)
        return require_found(
            self._find_first(select(Pairing).where(condition)),
            f"there is no pairing request {text!r}; `maestro pairings list` shows all requests",
        )

    def settle_pairing(self, pairing: Pairing, status: PairingStatus, actor: str) -> None:
        """Store an operator's decision on a pairing request."""
        pairing.status, pairing.settled_at, pairing.settled_by = status, self._now, actor
        self._save_objects(pairing)

    def list_pairing_page(self, before: int | None, limit: int) -> Sequence[Pairing]:
        """Return up to ``limit`` pairing requests with ids below ``before``, newest first."""
        page = select(Pairing).order_by(col(Pairing.id).desc()).limit(limit)
        return self._find_all(page.where(col(Pairing.id) < before) if before is not None else page)

    def add_invitation(self, code: str, lifetime: timedelta, *, as_owner: bool, actor: str) -> datetime:
        """Store the digest of an invitation code, delete expired codes, and return when the new code expires."""
        self._run_statement(delete(Invitation).where(col(Invitation.expires_at) <= self._now))
        expires_at = self._now + lifetime
        self._session.add(
            Invitation(
                digest=_code_digest(code),
                as_owner=as_owner,
                created_at=self._now,
                created_by=actor,
                expires_at=expires_at,
            )
        )
        return expires_at

    def redeem_invitation(self, code: str) -> Invitation | None:
        """Return and delete an invitation by its code; return None if the code is unknown, used or expired."""
        invitation = self._session.get(Invitation, _code_digest(code))
        if invitation is None:
            return None
        self._session.delete(invitation)
        return invitation if invitation.expires_at > self._now else None

    def count_wrong_codes(self, person: PersonId, since: timedelta) -> tuple[int, int]:
        """Count the wrong codes that this user, and that all users, sent within the last period ``since``."""
        recent = (
            select(AuditEntry.subject, func.count())
            .where(
                col(AuditEntry.at) > self._now - since,
                # A time in the future does not count: it was stored before the clock was set back.
                col(AuditEntry.at) <= self._now,
                AuditEntry.action == WRONG_CODE,
            )
            .group_by(AuditEntry.subject)
        )
        by_person = {str(subject): int(count) for subject, count in self._run_statement(recent)}
        return by_person.get(str(person), 0), sum(by_person.values())


def _code_digest(code: str) -> str:
    return hashlib.sha256(normalize_code(code).encode()).hexdigest()


class EndedLogins(Repository):
    """Queries for logins that ended before they expired; a valid login has no row."""

    def end_login(self, login: str, expires_at: datetime) -> None:
        """Record that a login has ended, and delete expired records; a second call has no effect."""
        self._session.exec(delete(EndedLogin).where(col(EndedLogin.expires_at) <= self._now))
        self._session.exec(insert(EndedLogin).values(id=login, expires_at=expires_at).on_conflict_do_nothing())

    def is_ended(self, login: str) -> bool:
        """Return whether a login has ended before it expired."""
        return self._find_first(select(EndedLogin.id).where(EndedLogin.id == login)) is not None


class WebUsers(Repository):
    """Queries for login tickets, channels and uploads of web users, and for states of connectors."""

    owners = LazyRepository(Owners)
    pairings = LazyRepository(Pairings)
    logins = LazyRepository(EndedLogins)
    clients = LazyRepository(PayingClients)

    _STATUS = insert(ConnectorStatus)
    _EVENT = PreparedStatement(
        _STATUS.on_conflict_do_update(
            index_elements=["platform", "account"],
            set_={"last_event_at": _STATUS.excluded.last_event_at, "lag_seconds": _STATUS.excluded.lag_seconds},
        )
    )

    def add_ticket(self, ticket: str, user: tuple[str, str, str], lifetime: timedelta) -> None:
        """Store the digest of a login ticket for a user; ``user`` is an id, a name and a role."""
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
        """Return and delete a login ticket; return None if the ticket is unknown, used or expired."""
        row = self._session.get(WebTicket, _ticket_digest(ticket))
        if row is None:
            return None
        self._session.delete(row)
        return row if row.expires_at > self._now else None

    def claim_channel(self, address: Address, user_id: str) -> bool:
        """Make a user the owner of a channel that has none; return whether this user is the owner now."""
        values = {"user_id": user_id, "opened_at": self._now, **address.model_dump(include=set(CHANNEL_KEY))}
        self._session.exec(insert(ChannelOwner).values(**values).on_conflict_do_nothing())
        owner = self._session.get(ChannelOwner, (address.platform, address.account, address.channel))
        return owner is not None and owner.user_id == user_id

    def add_upload(self, upload: UploadedFile) -> None:
        """Store the record of an uploaded file."""
        self._session.add(upload)

    def list_uploads(self, ids: Sequence[str]) -> dict[str, UploadedFile]:
        """Return the uploaded files with these ids, by id."""
        rows = self._find_all(select(UploadedFile).where(col(UploadedFile.id).in_(ids)))
        return {row.id: row for row in rows}

    def record_connector_state(
        self, platform: str, account: str, state: str, detail: str, *, trouble: bool = False
    ) -> None:
        """Store the state that a connector reports; with ``trouble``, ``detail`` is also stored as its last error."""
        status = self.find_status(platform, account)
        status.state, status.detail, status.changed_at = state, detail, self._now
        if trouble:
            status.last_error, status.last_error_at = detail, self._now
        self._session.flush()

    def record_connector_event(self, platform: str, account: str, lag: timedelta) -> None:
        """Record that a connector received an event now, and the age ``lag`` of that event."""
        status = _starting_status(platform, account, self._now)
        status.last_event_at, status.lag_seconds = self._now, lag.total_seconds()
        self._write_shared(self._EVENT, (platform, account), **vars(status))

    def find_status(self, platform: str, account: str) -> ConnectorStatus:
        """Return the state that a connector last reported; before the first report, the state is starting."""
        status = self._session.get(ConnectorStatus, (platform, account))
        if status is None:
            status = _starting_status(platform, account, self._now)
            self._session.add(status)
        return status

    def list_connectors(self) -> Sequence[ConnectorStatus]:
        """Return the states that all connectors last reported."""
        return self._find_all(select(ConnectorStatus).order_by(ConnectorStatus.platform, ConnectorStatus.account))


def _starting_status(platform: str, account: str, now: datetime) -> ConnectorStatus:
    return ConnectorStatus(platform=platform, account=account, state="starting", changed_at=now)


def _ticket_digest(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()
