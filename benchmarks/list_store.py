"""A store as an operator meets it after a busy quarter: a hundred thousand jobs of every kind, and how they went.

Rows are written in bulk, with the columns that lists show, filter and sort by; every other column has its default. So a
new column needs no change here. The same seed makes the same store each time.
"""

import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from sqlalchemy import create_engine, insert
from sqlmodel import SQLModel

from benchmarks.list_rows import (
    DAYS,
    Extent,
    OneJob,
    Row,
    archived_row,
    call_row,
    charged,
    conversation_row,
    delivery_row,
    fact_row,
    inbox_row,
    one_job,
    queue_row,
    said_rows,
    step_rows,
    tool_row,
)
from maestro.domain.agents.agent import Agent
from maestro.domain.conversations.conversation import ArchivedMessage, Conversation, Message
from maestro.domain.deliveries import Delivery
from maestro.domain.jobs.job import Job, JobKind, JobStatus, JobStep
from maestro.domain.llm.budgets import Client
from maestro.domain.llm.calls import LLMCall
from maestro.domain.llm.usage import UsageRow
from maestro.domain.memory.memory import FactCategory, MemoryFact
from maestro.domain.messages import InboxRow
from maestro.domain.people.people import AuditEntry
from maestro.domain.tools import ToolRun
from maestro.store.store import Store

BATCH = 5_000
"""Jobs whose rows are written together."""


def build(path: Path, extent: Extent, now: datetime) -> None:
    """Make the store, whose newest job began just before ``now``."""
    Store.open(path).close()
    with closing(_Writer(path)) as write:
        _agents(write, extent, now)
        dice = random.Random(9)  # noqa: S311 - the same store in every run
        jobs = (one_job(number, extent, now, dice) for number in range(1, extent.jobs + 1))
        while batch := tuple(islice(jobs, BATCH)):
            _flow(write, batch, extent, dice)
        _known(write, extent, now, dice)


class _Writer:
    """Writes rows in bulk, and nothing for the case of a crash: the file is thrown away then."""

    def __init__(self, path: Path) -> None:
        def connect() -> sqlite3.Connection:
            driver = sqlite3.connect(path)
            for pragma in ("journal_mode=OFF", "synchronous=OFF", "foreign_keys=OFF", "cache_size=-200000"):
                driver.execute(f"PRAGMA {pragma}")
            return driver

        self._engine = create_engine("sqlite://", creator=connect)
        self._connection = self._engine.connect()

    def __call__(self, table: type[SQLModel], rows: Iterable[Row]) -> None:
        """Write rows of a table, all with the same columns."""
        many = list(rows)
        if many:
            self._connection.execute(insert(table), many)

    def close(self) -> None:
        """Keep what was written, and what SQLite makes of it as it does in a store that is used."""
        self._connection.commit()
        self._connection.close()
        self._engine.dispose()


def _agents(write: _Writer, extent: Extent, now: datetime) -> None:
    write(Client, ({"id": n, "name": f"Client {n}", "slug": f"client-{n}"} for n in range(1, extent.clients + 1)))
    numbers = range(1, extent.agents + 1)
    made = {"created_at": now, "updated_at": now}
    write(Agent, ({"id": n, "slug": f"agent-{n}", "name": f"Agent {n}", **made} for n in numbers))
    days = timedelta(days=DAYS)
    write(Conversation, (conversation_row(n, extent, now - days) for n in range(1, extent.conversations + 1)))


def _flow(write: _Writer, jobs: tuple[OneJob, ...], extent: Extent, dice: random.Random) -> None:
    """Write what these jobs left behind."""
    messages = [one for one in jobs if one.kind is JobKind.MESSAGE]
    answered = [one for one in jobs if one.status is JobStatus.COMPLETED]
    asked = [one for one in jobs if one.status in (JobStatus.COMPLETED, JobStatus.FAILED)]
    write(InboxRow, (inbox_row(one) for one in messages))
    write(Job, (queue_row(one, extent, dice) for one in jobs))
    write(JobStep, (row for one in asked for row in step_rows(one, dice)))
    calls = [call_row(one, dice) for one in asked]
    write(LLMCall, ({**row, "request": "digest", "started_at": row["at"], "finished_at": row["at"]} for row in calls))
    write(UsageRow, ({**row, **charged(one, extent)} for one, row in zip(asked, calls, strict=True)))
    write(Delivery, (delivery_row(one) for one in answered))
    write(ToolRun, (tool_row(one) for one in answered if one.number % 5 == 0))
    write(Message, (row for one in jobs for row in said_rows(one, extent, dice)))
    write(ArchivedMessage, (archived_row(one, extent) for one in jobs if one.number <= extent.archived))


def _known(write: _Writer, extent: Extent, now: datetime, dice: random.Random) -> None:
    """Write what agents know, and what operators did."""
    facts = range(extent.facts)
    categories = list(FactCategory)
    write(MemoryFact, ({**fact_row(n, extent), "category": dice.choice(categories), "created_at": now} for n in facts))
    actions = ("job.resume", "job.restart", "job.cancel", "agent.change", "settings.change", "login")
    minute = timedelta(days=DAYS) / extent.audited
    write(
        AuditEntry,
        (
            {
                "at": now - minute * (extent.audited - n),
                "actor": "operator",
                "action": actions[n % 6],
                "subject": f"s-{n}",
            }
            for n in range(extent.audited)
        ),
    )
