"""Serves the API and the dashboard on their port."""

import asyncio
from collections.abc import Mapping

from sqlalchemy.exc import SQLAlchemyError

from maestro.store.store import Store
from temporal.engine import Engine

CLOSING_SECONDS = 2
BACKLOG = 512


class Health:
    """Says what works and what does not, one word or one sentence each."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine

    async def checks(self) -> Mapping[str, str]:
        """Return "ok" or the problem for the store, Temporal and the worker."""
        return {
            "store": await asyncio.to_thread(self._store_check),
            "temporal": await self._engine.reachable(),
            "worker": "ok" if self._engine.polling else "the worker does not poll yet",
        }

    def _store_check(self) -> str:
        try:
            with self._store.view() as tx:
                tx.jobs.pending()
        except SQLAlchemyError as error:
            return f"the store cannot be read ({type(error).__name__})"
        return "ok"
