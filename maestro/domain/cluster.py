"""The tables and values by which processes on several hosts share one store (ADR 42, ADR 43)."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from sqlmodel import Field, SQLModel

from maestro.domain.columns import UtcDateTime


class FencingNumber(SQLModel, table=True):
    """The number of a lease's newest holder; each process that takes the lease raises it.

    A holder that finds another number than its own has lost the lease, even if its clock says otherwise.
    """

    __tablename__ = "leases"

    name: str = Field(primary_key=True)
    number: int
    holder: str
    taken_at: datetime = Field(sa_type=UtcDateTime)


class KeyFingerprint(SQLModel, table=True):
    """A keyed hash of a key that all hosts of one store must share; it reveals nothing about the key."""

    __tablename__ = "key_fingerprints"

    name: str = Field(primary_key=True)
    fingerprint: str


class Lease(Protocol):
    """The right to do something that only one process may do at a time, such as running a connector.

    ``number`` is the fencing number: the store knows the number of the newest holder. It is 0 where the operating
    system alone decides who holds the lease, because there a holder cannot lose it.
    """

    name: str
    number: int

    @property
    def is_held(self) -> bool:
        """Whether this process certainly holds the lease now; false some seconds before another may take it."""
        ...

    def take(self) -> bool:
        """Take the lease; return false if another process holds it. Raises ``OSError`` and ``StoreBusy``."""
        ...

    def describe_holder(self) -> str:
        """Return a text for the process that holds the lease, such as ``process 123``."""
        ...

    def release(self) -> None:
        """Release the lease, if this object holds it."""
        ...


class Leases(Protocol):
    """The leases of this process; ``owner`` identifies the process to the processes that share its store."""

    owner: str

    def lease(self, name: str) -> Lease:
        """Return the lease of this name, not yet taken."""
        ...

    def find_gone(self, owners: Collection[str]) -> frozenset[str]:
        """Return those of these owners whose process has ended, or was not heard of for some time."""
        ...

    def find_problem(self) -> str:
        """Return why this process must end, because another one uses the store alone; empty in the normal case."""
        ...

    def close(self) -> None:
        """Release everything that this process holds."""
        ...
