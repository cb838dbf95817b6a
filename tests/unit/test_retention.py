"""Old data goes, by and by; nothing that anything open needs goes with it."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from maestro.domain.deliveries import Delivery, DeliveryPurpose
from maestro.domain.errors import NotFound
from maestro.domain.jobs.job import JobKind, JobStatus
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.maintenance import MaintenanceName
from maestro.domain.settings.telemetry import RetentionSettings
from maestro.operations import retention
from maestro.operations.conversations import remove_discarded_files
from maestro.operations.retention import CHUNK, RetentionService
from maestro.store.conversations.retention import REDELIVERY
from maestro.store.engine import sqlite
from maestro.store.files import MediaFolder
from maestro.store.replays import preview_replay
from maestro.store.store import Store
from tests.support.database import change, query
from tests.support.job_rows import JobRows
from tests.support.spoken import Spoken
from tests.unit.test_removal import talk

TABLES = ("queue", "inbox", "messages", "conversations", "prompts", "prompt_parts", "job_steps", "deliveries")


class Old:
    """A store with jobs, and the service that deletes from it."""

    def __init__(self, folder: Path) -> None:
        self.rows = JobRows.at(folder)
        self.rows.store.process = "worker@one:1"
        self.folder = folder
        self.counted: Counter[str] = Counter()
        self.settings = RetentionSettings(messages_days=30, jobs_days=60, calls_days=7)
        self.service = self.process(self.rows.store)

    def process(self, store: Store) -> RetentionService:
        """Return the service of a process."""
        files = MediaFolder(self.folder / "media")
        return RetentionService(
            store,
            lambda: self.settings,
            lambda: remove_discarded_files(store, self.folder, files),
            lambda kind, number: self.counted.update({kind: number}),
        )

    def count(self, table: str) -> int:
        return int(query(self.rows.store.location, f"SELECT count(*) AS n FROM {table}")[0]["n"])  # type: ignore[arg-type]

    def column(self, job_id: str, name: str) -> Any:
        found = query(self.rows.store.location, f"SELECT {name} AS value FROM queue WHERE id = ?", job_id)  # type: ignore[arg-type]
        return found[0]["value"] if found else None

    def go(self, days: float) -> None:
        """Let days pass, and delete what is due."""
        self.rows.clock.go(days=days)
        self.service.run_if_due()


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Old]:
    monkeypatch.setattr(retention, "PAUSE_SECONDS", 0)
    made = Old(tmp_path)
    yield made
    made.rows.store.close()


async def test_off_by_default_nothing_is_deleted(old: Old) -> None:
    old.settings = RetentionSettings()
    await talk(old.rows)
    before = [old.count(table) for table in TABLES]
    old.go(days=3650)
    assert [old.count(table) for table in TABLES] == before


async def test_texts_of_calls_go_first_then_the_conversation_then_the_job_and_the_inbox_last(old: Old) -> None:
    job_id, conversation_id = await talk(old.rows)
    parts = old.count("prompt_parts")
    assert parts
    old.go(days=8)
    assert (old.column(job_id, "calls_deleted"), old.count("prompts"), old.count("messages")) == (True, 0, 2)
    assert old.count("prompt_parts") == 0
    old.go(days=23)
    assert (old.count("messages"), old.count("conversations"), old.column(job_id, "erased")) == (0, 0, True)
    with pytest.raises(NotFound, match="was deleted by retention"), old.rows.store.view() as tx:
        tx.conversations.removals.get_conversation(conversation_id)
    old.go(days=31)
    assert [old.count(table) for table in ("queue", "job_steps", "llm_calls", "inbox")] == [0, 0, 0, 0]
    assert old.counted == {"calls": 1, "conversations": 1, "jobs": 1, "inbox": 1}


@pytest.mark.sqlite_only(reason="autovacuum of PostgreSQL frees the space")
async def test_the_file_gets_smaller_without_stopping_others_for_long(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "RETURNED_PAGES", 20)

    def pages(name: str = "page_count") -> int:
        return int(query(old.rows.store.location, f"PRAGMA {name}")[0][0])  # type: ignore[arg-type]

    for number in range(20):
        await talk(old.rows, f"{number} " * 10_000)
    before = pages()
    old.go(days=100)
    assert pages() < before * 0.6
    assert pages("freelist_count") < pages() * 2 * sqlite.KEPT_SHARE


async def test_the_sums_of_usage_stay(old: Old) -> None:
    await talk(old.rows)
    before = old.count("usage_days")
    old.go(days=400)
    old.go(days=1)
    assert old.count("queue") == 0
    assert old.count("usage_days") == before


async def test_a_repeated_message_is_recognised_for_thirty_days_although_its_job_is_gone(old: Old) -> None:
    old.settings = RetentionSettings(messages_days=1, jobs_days=1)
    await talk(old.rows)
    old.go(days=2)
    assert (old.count("queue"), old.count("inbox")) == (0, 1)
    assert query(old.rows.store.location, "SELECT content FROM inbox")[0]["content"] == ""  # type: ignore[arg-type]
    old.go(days=REDELIVERY.days)
    assert old.count("inbox") == 0


async def test_a_job_without_its_answers_is_restarted_and_not_resumed(old: Old) -> None:
    job_id = await Spoken(old.rows).answered("hello", "hi")
    old.rows.end(job_id, JobStatus.FAILED, "SendFailed")
    old.go(days=8)
    with old.rows.store.view() as tx:
        assert "retention.callsDays" in preview_replay(tx, job_id, ReplayMode.RESUME, None).problem
        assert not preview_replay(tx, job_id, ReplayMode.RESTART, None).problem


async def test_a_conversation_that_goes_on_stays_whole(old: Old) -> None:
    await talk(old.rows)
    old.rows.clock.go(days=25)
    _, conversation_id = await talk(old.rows, "still here", "so am I")
    old.go(days=25)
    with old.rows.store.view() as tx:
        assert "still here" in {said.content for said in tx.conversations.list_messages(conversation_id)}


def test_what_something_open_needs_stays(old: Old) -> None:
    parent, child, unsure, plain = (old.rows.add(kind=JobKind.WEBHOOK) for _ in range(4))
    with old.rows.store.begin() as tx:
        tx.jobs.update_job(child, parent_id=parent)
        address = tx.jobs.get(unsure).address.model_dump()
        tx.deliveries.add_chunk(
            Delivery(job_id=unsure, purpose=DeliveryPurpose.ANSWER, seq=0, content="x", created_at=tx.now, **address)
        )
    for job_id in (parent, unsure, plain):
        old.rows.end(job_id, JobStatus.COMPLETED)
    change(old.rows.store.location, "UPDATE deliveries SET state = 'unconfirmed'")  # type: ignore[arg-type]
    old.go(days=100)
    left = {row["id"] for row in query(old.rows.store.location, "SELECT id FROM queue")}  # type: ignore[arg-type]
    assert left == {parent, child, unsure}
    old.rows.end(child, JobStatus.COMPLETED)
    old.go(days=100)
    left = {row["id"] for row in query(old.rows.store.location, "SELECT id FROM queue")}  # type: ignore[arg-type]
    assert left == {unsure}


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_relations_are_no_relative_of_an_open_job_is_deleted(old: Old, seed: int) -> None:
    chance = random.Random(seed)
    jobs = [old.rows.add(kind=JobKind.WEBHOOK) for _ in range(40)]
    links: list[tuple[str, str]] = []
    with old.rows.store.begin() as tx:
        for number in chance.sample(range(1, len(jobs)), 25):
            job_id, other = jobs[number], chance.choice(jobs[:number])  # a job refers to an older one
            relation = chance.choice(["parent_id", "merged_into", "restarted_from"])
            tx.jobs.update_job(job_id, **{relation: other})
            links.append((job_id, other))
    open_jobs = set(chance.sample(jobs, 3))
    for job_id in jobs:
        if job_id not in open_jobs:
            old.rows.end(job_id, JobStatus.COMPLETED)
    needed = set(open_jobs)
    while more := {other for pair in links for other in pair if needed & set(pair)} - needed:
        needed |= more
    old.go(days=100)
    left = {row["id"] for row in query(old.rows.store.location, "SELECT id FROM queue")}  # type: ignore[arg-type]
    assert left == needed


def test_many_jobs_are_deleted_in_chunks_by_one_process(old: Old) -> None:
    jobs = [old.rows.end(old.rows.add(kind=JobKind.CRON), JobStatus.COMPLETED) for _ in range(3 * CHUNK + 2)]
    old.rows.clock.go(days=100)
    sizes: list[int] = []
    delete = old.service._delete_chunk

    def record(owners: Any, index: int, *rest: Any, **more: Any) -> bool:
        sizes.append(len(owners.groups[index]))
        return delete(owners, index, *rest, **more)

    old.service._delete_chunk = record  # type: ignore[method-assign]
    other = Store(old.rows.store.location, old.rows.clock)
    other.process = "worker@two:2"
    with old.rows.store.begin() as tx:
        tx.system.maintenance.claim(MaintenanceName.RETENTION, "worker@one:1", timedelta(minutes=10))
    assert not old.process(other).run_if_due()
    assert old.service.run_if_due()
    assert max(sizes) == CHUNK
    assert old.count("queue") == 0
    assert old.counted["jobs"] == len(jobs)
    assert not old.service.run_if_due(), "a second round on the same day"
    with old.rows.store.view() as tx:
        task = tx.system.maintenance.find_task(MaintenanceName.RETENTION)
        assert task is not None
        assert json.loads(task.result)["jobs"] == len(jobs)
    other.close()
