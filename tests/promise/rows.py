"""The committed rows of a store, read from outside, and deleted between two histories."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from maestro.domain.agents.agent import Agent, AgentChannel
from maestro.store.engine.sqlite import driver_connection
from tests.promise.process import PausingStore
from tests.support import database, postgresql
from tests.support.fresh_store import fresh_store, sqlite_of
from tests.support.job_rows import Clock

CHANNELS = ("one", "two")
FAST = "PRAGMA synchronous=OFF"
"""Processes die in the model; the machine does not."""
WITHOUT_TRIGGERS = "SET session_replication_role = replica"
"""Lets PostgreSQL delete rows in any order."""


class Rows:
    """A connection beside those of the processes."""

    def __init__(self, path: Path) -> None:
        self._connection: Any
        if postgresql.wanted():
            self._connection = psycopg.connect(postgresql.database_url(path), autocommit=True)
            self._connection.execute(WITHOUT_TRIGGERS)
            self.change = self._connection.execute
        else:
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._connection.execute(FAST)
            self.change = self._connection.executescript
        # Triggers delete the rows of the full-text index.
        tables = [name for name in database.table_names(path) if not name.startswith(("sqlite_", "memory_index"))]
        emptied = [name for name in tables if not self.read(f"SELECT 1 FROM {name} LIMIT 1")]
        self._deletion = "; ".join(("BEGIN", *(f"DELETE FROM {name}" for name in emptied), "COMMIT"))

    def read(self, sql: str, *values: object) -> list[Any]:
        """Return the rows that a query finds."""
        if postgresql.wanted():
            sql = sql.replace("?", "%s")
        return list(self._connection.execute(sql, values).fetchall())

    def delete_all(self) -> None:
        """Delete the rows that a history has written."""
        self.change(self._deletion)

    def close(self) -> None:
        self._connection.close()


class SharedDatabase:
    """A database with one agent, the stores of the processes over it, and their clock."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self.clock = Clock()
        self.jobs = 0
        path = folder / "maestro.db"
        with (first := fresh_store(path, self.clock)).begin() as tx:
            agent = tx.agents.save_agent(Agent(slug="ada", name="Ada", created_at=tx.now, updated_at=tx.now))
            for channel in CHANNELS:
                tx.agents.save_binding(
                    AgentChannel(agent_id=agent.id or 0, platform="web", account="default", channel=channel)
                )
        first.close()
        self.rows = Rows(path)
        self.stores = {name: PausingStore(path, self.clock) for name in names}
        if not postgresql.wanted():
            for store in self.stores.values():
                with sqlite_of(store)._writer.engine.connect() as connection:
                    driver_connection(connection).execute(FAST)

    def next_job_id(self) -> str:
        """Return an id that is the same whenever a history is repeated."""
        self.jobs += 1
        return f"job-{self.jobs}"

    def close(self) -> None:
        self.rows.close()
        for store in self.stores.values():
            store.close()
