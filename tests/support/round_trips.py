"""Counts exactly what one plain message asks of PostgreSQL: round trips, statements, and the locks of its transactions.

``python -m tests.support.round_trips`` prints the counts of the second message of a conversation, and its statements.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
from structlog.testing import capture_logs

from maestro.store.engine.round_trips import StoreConnection, StoreCursor
from tests.support import postgresql
from tests.support.instance import Instance, running_instance
from tests.support.message_cost import MessageCounter
from tests.support.web_client import WebClient

CHANNEL = "counted"
SHOWN = 200
ALONE, SCOPED = "pg_advisory_xact_lock(", "pg_advisory_xact_lock_shared("


@dataclass
class ServerCounts:
    """What the server was asked while one message was answered; each round trip is the statements that it carried."""

    trips: list[list[str]] = field(default_factory=list)
    waiting: dict[int, list[str]] = field(default_factory=dict)

    @property
    def statements(self) -> list[str]:
        """All statements."""
        return [sql for trip in self.trips for sql in trip]

    @property
    def alone(self) -> int:
        """The transactions that kept all others from writing."""
        return sum(ALONE in sql and SCOPED not in sql and "hashtextextended" not in sql for sql in self.statements)

    @property
    def scoped(self) -> int:
        """The transactions beside which others could write."""
        return sum(SCOPED in sql for sql in self.statements)


class ServerCounter:
    """Counts, at the driver, how often a thread waits for the server."""

    def __init__(self) -> None:
        self.counts: ServerCounts | None = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Put the counter in."""
        wait = psycopg.Connection.wait

        def counted_wait(connection: Any, gen: Any, *args: Any, **named: Any) -> Any:
            return wait(connection, self._follow(connection, gen), *args, **named)

        def counted(run: Callable[..., Any]) -> Callable[..., Any]:
            def counted_run(cursor: Any, query: Any, *args: Any, **named: Any) -> Any:
                if self.counts is not None and isinstance(cursor.connection, StoreConnection):
                    self.counts.waiting.setdefault(id(cursor.connection), []).append(" ".join(str(query).split()))
                return run(cursor, query, *args, **named)

            return counted_run

        with (
            mock.patch.object(psycopg.Connection, "wait", counted_wait),
            mock.patch.object(StoreCursor, "execute", counted(StoreCursor.execute)),
            mock.patch.object(StoreCursor, "queue", counted(StoreCursor.queue)),
        ):
            yield

    def _follow(self, connection: Any, generator: Any) -> Any:
        """Pass a generator of the driver on, and note a round trip once it waits outside of a pipeline's beginning."""
        waited = False
        sent: Any = None
        while True:
            try:
                asked = generator.send(sent)
            except StopIteration as end:
                if waited:
                    self._note(connection)
                return end.value
            waited = True
            sent = yield asked

    def _note(self, connection: Any) -> None:
        counts = self.counts
        if counts is None or not isinstance(connection, StoreConnection):
            return
        if connection._pipeline is not None and connection._pipeline.result_queue:
            return  # the statements are on their way; the end of the pipeline waits for their results
        statements = counts.waiting.pop(id(connection), [])
        counts.trips.append(statements)


async def counted(counter: ServerCounter, instance: Instance, client: WebClient) -> ServerCounts:
    """Answer one plain message and count what it asks of the server, until its job has ended."""
    quiet = MessageCounter()
    with quiet.counting():
        await quiet.quiet()
        counter.counts = counts = ServerCounts()
        await client.ask("hello")
        temporal = await instance.temporal()
        job_id = await asyncio.to_thread(lambda: instance.jobs(CHANNEL)[-1]["id"])
        await temporal.get_workflow_handle(job_id).result()
        await quiet.quiet()
        counter.counts = None
    return counts


@contextlib.asynccontextmanager
async def counted_instance(folder: Path) -> AsyncIterator[Callable[[], Awaitable[ServerCounts]]]:
    """Run a Maestro on PostgreSQL and give what counts its next message; the first ones have prepared statements."""
    counter = ServerCounter()
    with counter.watching(), capture_logs():
        async with running_instance(folder) as instance, instance.client(CHANNEL) as client:
            for _ in range(4):
                await client.ask("hello")
            await instance.ended(CHANNEL, "completed")
            yield partial(counted, counter, instance, client)


async def _show() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with counted_instance(Path(folder)) as answer:
            counts = await answer()
    for number, trip in enumerate(counts.trips, 1):
        for sql in trip:
            print(f"{number:3} {sql[:SHOWN]}")
    print(f"{len(counts.trips)} round trips, {len(counts.statements)} statements")
    print(f"{counts.alone} transactions alone, {counts.scoped} with a scope")


if __name__ == "__main__":
    os.environ.setdefault(postgresql.SWITCH, "postgresql")
    postgresql.use_postgresql()
    asyncio.run(_show())
