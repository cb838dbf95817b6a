"""The cost of a message in the store, and the throughput of several workers on one PostgreSQL server."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

import psycopg

from benchmarks.measure.bench import Bench
from benchmarks.results import Figure, Section, at_most, figure
from maestro.store.engine.database import Location
from maestro.store.engine.schema import upgrade_database
from maestro.store.store import Store
from tests.support import postgresql
from tests.support.store_writers import Worker, open_intake, prepare, question

COUNTS = (1, 2, 4)
MESSAGES = 100
"""Messages of each worker, of which some more warm it up before."""
WARM = 20
SAMPLE_SECONDS = 0.01
MS = 1000.0
WAITING = """SELECT count(*) FILTER (WHERE wait_event_type = 'Lock')
    FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"""


async def writers(bench: Bench) -> Section:
    """Have workers write the rows of messages, without model, platform and Temporal."""
    return await asyncio.to_thread(_measure, bench)


def _measure(bench: Bench) -> Section:
    server = postgresql.start_server()
    figures = [*_on_sqlite(bench), *(one for count in COUNTS for one in _on_postgresql(bench, server, count))]
    sqlite, alone = figures[0].value, figures[1].value
    figures.append(figure("CPU of a message, PostgreSQL to SQLite", "times", alone / sqlite, at_most(1.3)))
    figures.append(figure("ceiling of a worker by the CPU of its store", "messages/s", MS / alone))
    return Section(
        "writers",
        "Writing messages, by the number of workers",
        f"{MESSAGES} messages for each worker, in channels of its own: accept, record, request, answer, receipt, in "
        "the transactions of the product, without model, platform and Temporal. CPU time is that of the worker. "
        "The server runs on the same machine with fsync off; waits are the sessions that wait for a lock, sampled "
        f"every {SAMPLE_SECONDS * MS:g} ms, per worker.",
        tuple(figures),
    )


def _on_sqlite(bench: Bench) -> Iterator[Figure]:
    took = []
    for number in range(bench.rounds):
        path = bench.folder / f"writers-{number}.db"
        _, cpu, _ = _run(path, 1)
        took.append(cpu)
    yield figure("SQLite, 1 worker: CPU of a message", "ms", took)


def _on_postgresql(bench: Bench, server: str, count: int) -> Iterator[Figure]:
    rates, cpus, waits = [], [], []
    for number in range(bench.rounds):
        name = f"writers_{count}_{number}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        rate, cpu, waiting = _run(server.replace("/postgres?", f"/{name}?"), count)
        rates.append(rate)
        cpus.append(cpu)
        waits.append(waiting)
    workers = f"PostgreSQL, {count} worker{'s' * (count > 1)}"
    yield figure(f"{workers}: CPU of a message", "ms", cpus)
    yield figure(f"{workers}: messages", "1/s", rates)
    yield figure(f"{workers}: time that a worker waits for locks", "%", waits)


def _run(location: Location, count: int) -> tuple[float, float, float]:
    """Return messages per second, milliseconds of CPU per message, and the share of time spent on waiting for locks."""
    upgrade_database(location)
    store = Store(location)
    prepare(store)
    store.close()
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as processes:
        list(processes.map(_answer, [location] * count, range(count), [0] * count, [WARM] * count))
        waits: list[int] = []
        with _sample_waits(location, waits):
            start = time.monotonic()
            spent = list(processes.map(_answer, [location] * count, range(count), [WARM] * count, [MESSAGES] * count))
            seconds = time.monotonic() - start
    share = sum(waits) / len(waits) / count * 100 if waits else 0.0
    return count * MESSAGES / seconds, sum(spent) / (count * MESSAGES) * MS, share


def _answer(location: Location, lane: int, first: int, count: int) -> float:
    """Accept and answer messages of one channel; return the seconds of CPU time."""
    store = Store(location)
    intake, worker = open_intake(store), Worker(store, None, f"worker-{lane}")
    began = time.process_time()
    for number in range(first, first + count):
        worker.answer(intake.accept_message(question(lane, number)).job_id)
    spent = time.process_time() - began
    store.close()
    return spent


@contextmanager
def _sample_waits(location: Location, waits: list[int]) -> Iterator[None]:
    """Sample the number of sessions that wait for a lock."""
    if not isinstance(location, str):
        yield
        return
    over = threading.Event()

    def sample() -> None:
        with psycopg.connect(location, autocommit=True) as connection:
            while not over.wait(SAMPLE_SECONDS):
                waits.extend(row[0] for row in connection.execute(WAITING))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
