"""Queries for the rows by which processes on several hosts agree: fencing numbers of leases, fingerprints of keys."""

from collections.abc import Mapping

from sqlalchemy import bindparam, delete
from sqlalchemy import select as columns
from sqlmodel import col, select

from maestro.domain.cluster import FencingNumber, KeyFingerprint
from maestro.domain.errors import LeaseLost
from maestro.store.engine.repository import Repository
from maestro.store.engine.statements import PreparedStatement, insert


class Fencing(Repository):
    """The check that keeps a process that lost a connector's lease from sending."""

    # The lock on the row makes a process that takes the lease wait for this transaction, and this one for that process.
    _NEWEST = PreparedStatement(
        columns(col(FencingNumber.number))
        .where(col(FencingNumber.name) == bindparam("of_lease"))
        .with_for_update(read=True)
    )

    def require_lease(self, platform: str, account: str) -> None:
        """Raise ``LeaseLost``, before a message is marked as being sent, unless this process may send it.

        Only leases that can be lost are checked: those of a store that several hosts share.
        """
        lease = self._link.fences.get((platform, account))
        if lease is None or not lease.number:
            return
        if not lease.is_held or self._read_value(self._NEWEST, of_lease=lease.name) != lease.number:
            raise LeaseLost(f"another process may run the connector {platform}/{account} by now")


class KeyFingerprints(Repository):
    """Queries for the fingerprints of the keys that all hosts share."""

    _ADD = PreparedStatement(insert(KeyFingerprint).on_conflict_do_nothing())
    _READ = PreparedStatement(
        columns(col(KeyFingerprint.fingerprint)).where(col(KeyFingerprint.name) == bindparam("of_key"))
    )

    def list_fingerprints(self) -> Mapping[str, str]:
        """Return the recorded fingerprints by the names of their keys."""
        return {row.name: row.fingerprint for row in self._find_all(select(KeyFingerprint))}

    def record_fingerprint(self, name: str, fingerprint: str) -> bool:
        """Record the fingerprint of a key if none is recorded; return whether the recorded one is the same."""
        self._run_change(self._ADD, name=name, fingerprint=fingerprint)
        return bool(self._read_value(self._READ, of_key=name) == fingerprint)

    def replace_fingerprint(self, name: str, fingerprint: str) -> None:
        """Record the fingerprint of a key in place of an earlier one."""
        self._run_statement(delete(KeyFingerprint).where(col(KeyFingerprint.name) == name))
        self._run_change(self._ADD, name=name, fingerprint=fingerprint)
