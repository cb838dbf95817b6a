"""What every repository has: the session of its transaction and the transaction's time."""

from datetime import datetime
from typing import Any

from sqlalchemy import CursorResult, Executable
from sqlmodel import Session


class Repository:
    """A set of queries about one noun, inside one transaction.

    What every message asks is prepared once, as a constant of its class: building a statement takes as long as running
    it.
    """

    def __init__(self, session: Session, now: datetime) -> None:
        self._session = session
        self._now = now

    def _run(self, statement: Executable, **values: object) -> CursorResult[*tuple[Any, ...]]:
        """Run a statement on the transaction's connection, with the values of its parameters.

        For what changes rows or reads columns: it costs half of what the session takes, because the session would also
        look through the objects it has loaded. Those keep the values they were loaded with: who wants a row as it is
        after a change reads its columns, or loads it for the first time.
        """
        return self._session.connection().execute(statement, values)
