"""What the store of a killed Maestro says, read from outside with nothing of ours in between."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.database import asking_again, query

Row = Mapping[str, Any]

PATIENCE = 60.0
LOOK = 0.02
"""Seconds between two looks: another process tells nobody what it writes."""


class Evidence:
    """The rows of one data folder; messages are named by their client's id."""

    def __init__(self, data: Path) -> None:
        self.path = data / "maestro.db"

    def rows(self, statement: str, *values: object) -> list[Row]:
        """Return what a query finds."""
        return [dict(row) for row in query(self.path, statement, *values)]

    async def ended(self, *client_ids: str) -> list[Row]:
        """Return the jobs of these messages when all have ended."""
        return await _so_many(len(client_ids), lambda: self._ended(*client_ids))

    async def found(self, statement: str, *values: object, count: int = 1, patience: float = PATIENCE) -> list[Row]:
        """Return what a query finds once it finds so many rows."""
        return await _so_many(count, lambda: self.rows(statement, *values), patience)

    async def job_ended(self, job_id: str) -> Row:
        """Return a job when it has ended."""
        return (await self.found("SELECT * FROM queue WHERE id = ? AND completed_at IS NOT NULL", job_id))[0]

    def jobs(self, client_id: str) -> list[Row]:
        """Return the job that answers a message."""
        return self.rows(
            "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE message_id LIKE ?", f"%:{client_id}"
        )

    def user_rows(self, client_id: str) -> tuple[int, int]:
        """Return how many rows the inbox and the conversation have of a message."""
        inbox = self.rows("SELECT id FROM inbox WHERE message_id LIKE ?", f"%:{client_id}")
        return len(inbox), sum(
            self.rows("SELECT count(*) AS n FROM messages WHERE role = 'user' AND inbox_id = ?", row["id"])[0]["n"]
            for row in inbox
        )

    def answers(self, job_id: str) -> list[str]:
        """Return the assistant's messages of a job."""
        found = self.rows("SELECT content FROM messages WHERE role = 'assistant' AND job_id = ?", job_id)
        return [row["content"] for row in found]

    def calls(self, job_id: str, purpose: str = "%") -> Counter[str]:
        """Count the model calls of a job by state, all of them or those for one purpose."""
        found = self.rows("SELECT state FROM llm_calls WHERE job_id = ? AND purpose LIKE ?", job_id, purpose)
        return Counter(row["state"] for row in found)

    def deliveries(self, job_id: str) -> list[Row]:
        """Return the chunks of a job in order."""
        return self.rows("SELECT * FROM deliveries WHERE job_id = ? ORDER BY id", job_id)

    def steps(self, job_id: str) -> list[tuple[str, str]]:
        """Return the journal of a job: each attempt's step and state."""
        found = self.rows("SELECT step, state FROM job_steps WHERE job_id = ? ORDER BY id", job_id)
        return [(row["step"], row["state"]) for row in found]

    def lanes(self) -> list[Row]:
        """Return who holds an outbound lane."""
        return self.rows("SELECT * FROM outbound_lanes")

    def _ended(self, *client_ids: str) -> list[Row]:
        return [job for one in client_ids for job in self.jobs(one) if job["completed_at"] is not None]


async def _so_many(count: int, find: Callable[[], list[Row]], patience: float = PATIENCE) -> list[Row]:
    with asking_again():
        async with asyncio.timeout(patience):
            while len(rows := find()) < count:  # noqa: ASYNC110 - another process writes them
                await asyncio.sleep(LOOK)
    return rows
