"""Queries for access of users: owners, known users, pairing requests and invitations.

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
    Invitation,
    KnownPerson,
    Owner,
    Pairing,
    PairingStatus,
    PersonId,
    normalize_code,
)
from maestro.store.engine.repository import Repository, required
from maestro.store.engine.statements import PreparedStatement, same

WRONG_CODE = "pairing.wrong_code"


class Owners(Repository):
    """Queries for owners, users who may talk to every agent and approve everything."""

    _HAS = PreparedStatement(select(Owner.user_id).where(same(Owner, *PersonId._fields)))

    def all(self) -> Sequence[Owner]:
        """Return all owners by platform and user id."""
        return self._all(select(Owner).order_by(col(Owner.platform), col(Owner.user_id)))

    def has(self, person: PersonId) -> bool:
        """Return whether this user is an owner."""
        return self._exists(self._HAS, **person._asdict())

    def add(self, person: PersonId, by: str) -> bool:
        """Make a user an owner; return false if the user already is one."""
        if self.has(person):
            return False
        self._save(Owner(**person._asdict(), added_at=self._now, added_by=by))
        return True

    def remove(self, person: PersonId) -> bool:
        """Remove an owner; return false if the user is not an owner."""
        owner = self._session.get(Owner, (person.platform, person.user_id))
        if owner is None:
            return False
        self._remove(owner)
        return True


class Pairings(Repository):
    """Queries for known users, pairing requests and invitations."""

    _KNOWN = PreparedStatement(select(KnownPerson.user_id).where(same(KnownPerson, *PersonId._fields)))
    _WAITING = PreparedStatement(
        select(func.count())
        .select_from(Pairing)
        .where(Pairing.status == PairingStatus.PENDING, col(Pairing.expires_at) > bindparam("now"))
    )

    def is_known(self, person: PersonId) -> bool:
        """Return whether an operator gave a user access."""
        return self._exists(self._KNOWN, **person._asdict())

    def admit(self, person: PersonId, user_name: str, by: str) -> bool:
        """Give a user access; return false if the user already has access."""
        if self.is_known(person):
            return False
        self._save(KnownPerson(**person._asdict(), user_name=user_name, added_at=self._now, added_by=by))
        return True

    def revoke(self, person: PersonId) -> bool:
        """Take away a user's access; return false if the user had none."""
        access = delete(KnownPerson).where(same(KnownPerson, *PersonId._fields))
        return self._run(access, **person._asdict()).rowcount > 0

    def known_users(self, after: PersonId | None, limit: int) -> Sequence[KnownPerson]:
        """Return up to ``limit`` known users after the given one, by platform and user id."""
        page = select(KnownPerson).order_by(col(KnownPerson.platform), col(KnownPerson.user_id)).limit(limit)
        if after is not None:
            page = page.where(tuple_(KnownPerson.platform, KnownPerson.user_id) > tuple(after))
        return self._all(page)

    def newest_of(self, person: PersonId) -> Pairing | None:
        """Return the newest pairing request of a user, in any state, or None."""
        theirs = select(Pairing).where(Pairing.platform == person.platform, Pairing.user_id == person.user_id)
        return self._first(theirs.order_by(col(Pairing.id).desc()).limit(1))

    def count_pending(self) -> int:
        """Count the open pairing requests."""
        return int(self._value(self._WAITING, now=self._now))

    def pending(self) -> Sequence[Pairing]:
        """Return the open pairing requests, oldest first, at most ``MOST_PENDING``."""
        pending = select(Pairing).where(Pairing.status == PairingStatus.PENDING, col(Pairing.expires_at) > self._now)
        return self._all(pending.order_by(col(Pairing.id)))

    def add(self, pairing: Pairing) -> Pairing:
        """Store a pairing request in place of an expired one of the same user.

        Only requests that expired long ago are deleted, so that a recent number never refers to another user.
        """
        older = self.newest_of(PersonId(pairing.platform, pairing.user_id))
        if older is not None and older.status is PairingStatus.PENDING:
            pairing.id = older.id
        stored = self._session.merge(pairing)
        self._session.flush()
        long_ago = col(Pairing.expires_at) <= self._now - KEPT_AFTER_EXPIRY
        self._run(delete(Pairing).where(col(Pairing.status) == PairingStatus.PENDING, long_ago))
        return stored

    def note_sent(self, pairing: Pairing, address: Address) -> None:
        """Record that a user's pairing code was sent once more, and to which channel."""
        pairing.told_at, pairing.account, pairing.channel = self._now, address.account, address.channel
        self._session.add(pairing)

    def named(self, text: str) -> Pairing:
        """Return the pairing request with this number or code; raises ``NotFound``."""
        condition = Pairing.code == normalize_code(text)
        if text.isascii() and text.isdecimal() and len(text) < len("99999999"):
            condition = Pairing.id == int(text)
        return required(
            self._first(select(Pairing).where(condition)),
            f"there is no pairing request {text!r}; `maestro pairings list` shows all requests",
        )

    def settle(self, pairing: Pairing, status: PairingStatus, by: str) -> None:
        """Store an operator's decision on a pairing request."""
        pairing.status, pairing.settled_at, pairing.settled_by = status, self._now, by
        self._save(pairing)

    def page(self, before: int | None, limit: int) -> Sequence[Pairing]:
        """Return up to ``limit`` pairing requests with ids below ``before``, newest first."""
        page = select(Pairing).order_by(col(Pairing.id).desc()).limit(limit)
        return self._all(page.where(col(Pairing.id) < before) if before is not None else page)

    def invite(self, code: str, lifetime: timedelta, *, as_owner: bool, by: str) -> datetime:
        """Store the digest of an invitation code, delete expired codes, and return when the new code expires."""
        self._run(delete(Invitation).where(col(Invitation.expires_at) <= self._now))
        expires_at = self._now + lifetime
        self._session.add(
            Invitation(
                digest=_code_digest(code), as_owner=as_owner, created_at=self._now, created_by=by, expires_at=expires_at
            )
        )
        return expires_at

    def redeem(self, code: str) -> Invitation | None:
        """Use up an invitation code; return None if the code is unknown, used or expired."""
        invitation = self._session.get(Invitation, _code_digest(code))
        if invitation is None:
            return None
        self._session.delete(invitation)
        return invitation if invitation.expires_at > self._now else None

    def count_wrong_codes(self, person: PersonId, since: timedelta) -> tuple[int, int]:
        """Count the wrong codes that this user, and that all users, sent in the last period ``since``."""
        recent = (
            select(AuditEntry.subject, func.count())
            .where(
                col(AuditEntry.at) > self._now - since,
                # A time in the future was stored before the clock was set back, and does not count.
                col(AuditEntry.at) <= self._now,
                AuditEntry.action == WRONG_CODE,
            )
            .group_by(AuditEntry.subject)
        )
        by_person = {str(subject): int(count) for subject, count in self._run(recent)}
        return by_person.get(str(person), 0), sum(by_person.values())


def _code_digest(code: str) -> str:
    return hashlib.sha256(normalize_code(code).encode()).hexdigest()
