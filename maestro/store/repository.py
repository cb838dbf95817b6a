"""What every repository has: the session of its transaction and the transaction's time."""

from datetime import datetime

from sqlmodel import Session


class Repository:
    """A set of queries about one noun, inside one transaction."""

    def __init__(self, session: Session, now: datetime) -> None:
        self._session = session
        self._now = now
