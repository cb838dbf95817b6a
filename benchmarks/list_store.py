"""A store after a busy quarter: a hundred thousand jobs of every kind, with their rows.

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
    JobProfile,
    Row,
    archived_row,
    billing_columns,
    call_row,
    conversation_row,
    delivery_row,
    draw_job,
    fact_row,
    inbox_row,
    message_rows,
    queue_row,
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
"""Jobs of one insert."""


def build(path: Path, extent: Extent, now: datetime) -> None:
    """Make the store; its newest job begins just before ``now``."""
    Store.open(path).close()
    with closing(_Writer(path)) as write:
        _write_agents(write, extent, now)
        dice = random.Random(9)  # noqa: S311 - the same store in every run
        jobs = (draw_job(number, extent, now, dice) for number in range(1, extent.jobs + 1))
        while batch := tuple(islice(jobs, BATCH)):
            _write_jobs(write, batch, extent, dice)
        _write_memory_and_audit(write, extent, now, dice)


class _Writer:
    """A bulk writer without crash safety: the file is deleted after the run."""

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
        """Commit the rows."""
        self._connection.commit()
        self._connection.close()
        self._engine.dispose()


def _write_agents(write: _Writer, extent: Extent, now: datetime) -> None:
    write(Client, ({"id": n, "name": f"Client {n}", "slug": f"client-{n}"} for n in range(1, extent.clients + 1)))
    numbers = range(1, extent.agents + 1)
    made = {"created_at": now, "updated_at": now}
    write(Agent, ({"id": n, "slug": f"agent-{n}", "name": f"Agent {n}", **made} for n in numbers))
    days = timedelta(days=DAYS)
    write(Conversation, (conversation_row(n, extent, now - days) for n in range(1, extent.conversations + 1)))


def _write_jobs(write: _Writer, jobs: tuple[JobProfile, ...], extent: Extent, dice: random.Random) -> None:
    """Write the rows of these jobs."""
    messages = [one for one in jobs if one.kind is JobKind.MESSAGE]
    answered = [one for one in jobs if one.status is JobStatus.COMPLETED]
    called = [one for one in jobs if one.status in (JobStatus.COMPLETED, JobStatus.FAILED)]
    write(InboxRow, (inbox_row(one) for one in messages))
    write(Job, (queue_row(one, extent, dice) for one in jobs))
    write(JobStep, (row for one in called for row in step_rows(one, dice)))
    calls = [call_row(one, dice) for one in called]
    write(LLMCall, ({**row, "request": "digest", "started_at": row["at"], "finished_at": row["at"]} for row in calls))
    write(UsageRow, ({**row, **billing_columns(one, extent)} for one, row in zip(called, calls, strict=True)))
    write(Delivery, (delivery_row(one) for one in answered))
    write(ToolRun, (tool_row(one) for one in answered if one.number % 5 == 0))
    write(Message, (row for one in jobs for row in message_rows(one, extent, dice)))
    write(ArchivedMessage, (archived_row(one, extent) for one in jobs if one.number <= extent.archived))


def _write_memory_and_audit(write: _Writer, extent: Extent, now: datetime, dice: random.Random) -> None:
    """Write the facts of agents, and the audit log of operators."""
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
