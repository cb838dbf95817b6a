"""Every change that an operator makes over HTTP leaves an entry in the audit log, with the address it came from."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.guards import RouteGuard
from api.parts import AgentChat
from maestro.domain.jobs.filters import JobFilter
from maestro.domain.jobs.job import JobEnding, JobKind, JobStatus
from maestro.operations.skills import SkillFolder, SkillOperations
from tests.support.api_client import BASIC, OTHER_ADDRESS, app_of, client
from tests.support.every_change import EXAMPLES, address, stage
from tests.support.job_rows import JobRows
from tests.support.outside import chat_of
from tests.support.route_table import ways

UNWRITTEN: Mapping[str, str] = {
    "POST /api/schedules/preview": "it changes nothing",
    "POST /schedules/preview": "it changes nothing",
    "POST /api/skills/try": "it changes nothing",
    "POST /skills/try": "it changes nothing",
    "POST /queue/{job_id}/replay/preview": "it changes nothing",
    "POST /queue/replay/preview": "it changes nothing",
    "POST /api/chat": "the post itself says who, what and when, and is kept",
    "POST /maestro": "the post itself says who, what and when, and is kept",
    "POST /api/web/tickets": "it is asked for whenever a chat page connects; the login is written down",
    "POST /logout": "there is no login to end under HTTP Basic; test_viewers.py ends one",
}
"""What leaves no entry, and why."""
LED = {"POST /queue/{job_id}/replay": "job_id", "POST /queue/replay": "batch_id"}
"""What stands in the address that a form leads to."""


@pytest.fixture
async def http(rows: JobRows, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to everything that an API can have as the operator, from another machine."""
    skills = SkillOperations(rows.store, SkillFolder(tmp_path / "skills"))
    app = app_of(rows, chat=AgentChat(chat_of(rows.store)), skills=skills)
    async with client(app, OTHER_ADDRESS, auth=BASIC) as http:
        yield http


def test_every_way_to_change_something_has_an_example(rows: JobRows) -> None:
    app = app_of(rows, chat=AgentChat(chat_of(rows.store)))
    changing = {way.name for way in ways(app) if way.guard is RouteGuard.PASSWORD and way.changes}
    assert changing - set(EXAMPLES) == set(), "add one to tests/support/every_change.py"
    assert set(EXAMPLES) - changing == set()
    assert set(UNWRITTEN) <= changing


async def test_every_change_is_written_down(rows: JobRows, http: httpx.AsyncClient) -> None:
    known = stage(rows)
    silent: list[str] = []
    for name, example in EXAMPLES.items():
        method, _, path = name.partition(" ")
        before = newest(rows)
        rows.clock.go(seconds=1)
        answer = await http.request(method, address(path, known, example), **example.options)
        assert answer.status_code < 400, (name, answer.text)
        known |= found_in(name, answer)
        added = written_since(rows, before)
        end_scheduled(rows)
        assert all((actor, origin) == ("operator", OTHER_ADDRESS) for actor, origin in added), name
        if not added:
            silent.append(name)
    assert set(silent) == set(UNWRITTEN)


def end_scheduled(rows: JobRows) -> None:
    """End the jobs of schedules: each has one at a time."""
    with rows.store.begin() as tx:
        found, _ = tx.jobs.lists.list_jobs(JobFilter(kind=(JobKind.CRON,), status=(JobStatus.PENDING,)), None, 100)
        for listed in found:
            tx.jobs.close_job(listed.job.id, JobEnding(status=JobStatus.COMPLETED))


def newest(rows: JobRows) -> int:
    with rows.store.view() as tx:
        return max((entry.id or 0 for entry in tx.system.audit.list_latest_entries(1)), default=0)


def written_since(rows: JobRows, before: int) -> list[tuple[str, str]]:
    """Return who made each entry that is new, and from where."""
    with rows.store.view() as tx:
        return [
            (entry.actor, entry.origin) for entry in tx.system.audit.list_latest_entries(50) if (entry.id or 0) > before
        ]


def found_in(name: str, answer: httpx.Response) -> dict[str, Any]:
    """Return what a later example needs of an answer."""
    if name == "POST /api/jobs/replay":
        return {"batch_id": answer.json()["id"]}
    led = answer.headers.get("location", "").rpartition("/")[2]
    return {LED[name]: led} if name in LED else {}
