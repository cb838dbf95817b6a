"""Rows that change seldom, kept from transaction to transaction, and what tells that they are as they were."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Generic, TypeVar, cast

from sqlmodel import select

from maestro.domain.editions import Edition
from maestro.domain.editions import Editions as Stamps
from maestro.store.prepared import Prepared
from maestro.store.repository import Repository, read_once

Key = TypeVar("Key")
Made = TypeVar("Made")
Query = TypeVar("Query", bound=Callable[..., Any])

MOST = 1_000
"""Things on one shelf."""


class Shelf(Generic[Key, Made]):
    """Keeps, by key, what was made of rows, for as long as their edition is the same; when it is full it is emptied.

    The database draws a new edition in the transaction that changes the rows, in whatever process. Who reads an edition
    and then the rows, in one transaction, reads what belongs together: so what was made under an edition is what would
    be made now.

    Threads may share a shelf. An edition and its things are one value, which is only ever replaced as a whole: what a
    slow thread still makes of an older edition is put beside things of that edition, or nowhere.
    """

    def __init__(self) -> None:
        self._kept: tuple[object, dict[Key, Made]] = (None, {})

    def get(self, edition: object, key: Key, make: Callable[[], Made]) -> Made:
        """Return the thing under this key, made now if there is none of this edition."""
        kept, things = self._kept
        if key in things and kept == edition:
            return things[key]
        if kept != edition or len(things) >= MOST:
            things = {}
            self._kept = (edition, things)
        made = things[key] = make()
        return made


class Editions(Repository):
    """The editions of each kind of rows; of accounts, only what decides which of them is asked first."""

    _ALL = Prepared(select(Edition.name, Edition.stamp))

    @read_once
    def now(self) -> Stamps:
        """Return all of them, as they are when the transaction first asks.

        What is made of the rows after that, and before this transaction changes them, may be kept under the stamp.
        """
        found = dict(self._rows(self._ALL))
        return Stamps(*map(found.get, Stamps._fields))


def kept_while(*tables: str) -> Callable[[Query], Query]:
    """Have a query that returns values keep what it found for the transactions to come, until one changes these tables.

    A transaction that may itself have changed rows of a kind that is kept reads them anew (``Link.reads_kept``).
    """

    def keep(method: Query) -> Query:
        @wraps(method)
        def reading(self: Repository, *arguments: Any) -> Any:
            if not self._link.reads_kept:
                return method(self, *arguments)
            stamps = Editions(self._link, self._now).now()
            shelf = self._link.shelves.setdefault(method.__qualname__, Shelf())
            edition = tuple(getattr(stamps, table) for table in tables)
            return shelf.get(edition, arguments, lambda: method(self, *arguments))

        return cast("Query", reading)

    return keep
