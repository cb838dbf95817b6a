"""The lists of the dashboard and the API over a store with a million messages: server time, and the size of a page."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import median
from benchmarks.list_rows import DAYS, Extent
from benchmarks.measure.bench import Bench
from benchmarks.processes import run_process
from benchmarks.results import Figure, Section, at_most, figure

REQUESTS = 20
"""Requests for each list, one after another."""
SERVER_MS = 100.0
"""Milliseconds that a list may take on the server."""
WEIGHT_KB = 150.0
"""Kilobytes of a page with its style sheets and scripts, not compressed."""

LISTS: Mapping[str, str] = {
    "jobs": "/api/jobs",
    "jobs, page 2": "/api/jobs?cursor={cursor}",
    "jobs that failed": "/api/jobs?status=failed",
    "jobs that completed": "/api/jobs?status=completed",
    "jobs of an agent": "/api/jobs?agent=agent-2",
    "jobs of a platform that has none": "/api/jobs?platform=none",
    "jobs with an error": "/api/jobs?error=RateLimited",
    "failed jobs of an agent on a platform": "/api/jobs?status=failed&agent=agent-5&platform=slack",
    "jobs that mention what many do": "/api/jobs?q=invoice",
    "jobs that mention what none does": "/api/jobs?q=nowhere",
    "counts of jobs": "/api/jobs/counts",
    "counts of jobs of a search": "/api/jobs/counts?q=nowhere",
    "failures by what went wrong": "/api/jobs/errors",
    "conversations": "/api/conversations",
    "conversations of an agent": "/api/conversations?agent=agent-2",
    "conversations that mention": "/api/conversations?q=nowhere",
    "messages that mention": "/api/conversations/search?q=nowhere",
    "messages of a conversation": "/api/conversations/7/messages",
    "memory of an agent": "/api/agents/agent-2/memory",
    "memory, searched": "/api/agents/agent-2/memory?q=invoice",
    "agents": "/api/agents",
    "questions": "/api/questions",
    "audit log": "/api/audit",
    "audit log, searched": "/api/audit?q=nowhere",
    "usage by day": "/api/usage",
    "usage of 90 days by model": "/api/usage?by=model&since={first}",
    "cost by day of one agent": "/api/usage?agent=agent-2",
    "latency": "/api/usage/latency",
    "budgets": "/api/usage/budgets",
}
PAGES: Mapping[str, str] = {
    "Overview": "/",
    "Jobs": "/queue",
    "Jobs, failed": "/queue?status=failed",
    "Jobs, searched": "/queue?q=nowhere",
    "Questions": "/questions",
    "Conversations": "/conversations",
    "Conversations, searched": "/conversations?q=nowhere",
    "Agents": "/agents",
    "Memory": "/memory",
    "Skills": "/skills",
    "Schedules": "/schedules",
    "Webhooks": "/webhooks",
    "Usage": "/usage",
    "Usage of 90 days": "/usage?since={first}",
    "Accounts": "/accounts",
    "Settings": "/settings",
    "Audit log": "/audit",
}


async def lists(bench: Bench) -> Section:
    """Make the store and request every list, in a process of its own."""
    folder = bench.folder / "lists"
    await asyncio.to_thread(folder.mkdir)
    command = (sys.executable, "-m", "benchmarks.list_requests", str(folder), str(REQUESTS))
    async with run_process(command, folder / "lists.log") as process:
        measured, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError((folder / "lists.log").read_text())
    return section(json.loads(measured), Extent())


def section(measured: Mapping[str, Any], extent: Extent) -> Section:
    """Return the figures of a measurement."""
    pages = {name: measured["pages"][name] for name in PAGES if name in measured["pages"]}
    return Section(
        "lists",
        "Lists over a large store",
        f"{extent.messages:,} messages, {extent.jobs:,} jobs of {DAYS} days with their steps, calls and deliveries, "
        f"{extent.conversations:,} conversations, {extent.agents} agents. {REQUESTS} requests for each, one after "
        "another, to the application itself, without a socket: the median of the CPU time, which is what a request "
        "takes on an idle machine. A page is weighed with its style sheets and scripts.",
        (
            figure("its size", "MB", measured["bytes"] / 1e6),
            *(_time(name, measured["lists"][name]) for name in LISTS),
            *(_time(f"page {name}", page) for name, page in pages.items()),
            figure("the heaviest page", "kB", max(page["bytes"] for page in pages.values()) / 1000, at_most(WEIGHT_KB)),
        ),
    )


def _time(name: str, times: Mapping[str, Sequence[float]]) -> Figure:
    return figure(name, "ms", median(times["cpu"]), at_most(SERVER_MS))
