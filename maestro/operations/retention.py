"""Retention: deletes old data in the background, in short transactions, one process at a time.

See docs/howto/read-and-delete-conversations.md.
"""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import structlog

from maestro.domain.errors import Conflict, NotFound, StoreBusy
from maestro.domain.maintenance import MaintenanceName
from maestro.domain.settings.telemetry import RetentionSettings
from maestro.store.conversations.retention import TextOwners
from maestro.store.store import Store

CLAIM = timedelta(minutes=10)
"""How long a process that died keeps the others from deleting; longer than the search for the owners of texts."""
ROUND = timedelta(hours=24)
LOOK_SECONDS = 60.0
CONVERSATIONS = 50
"""The conversations for which the owners of their texts are found at once, because that reads all prompts."""
JOBS = 1000
"""The jobs for which the owners of their texts are found at once."""
CHUNK = 25
"""The jobs of one transaction."""
INBOX_CHUNK = 200
PAUSE_SECONDS = 0.02
"""The pause after each transaction, in which others write."""
ACTOR = "retention"
FIRST = datetime(2000, 1, 1, tzinfo=UTC)

log = structlog.get_logger(__name__)

CountDeleted = Callable[[str, int], None]
"""A function that receives a kind of row and the number of deleted rows."""


class RoundEnded(Exception):
    """Raised when this process stops, or when another process has taken over the deletion."""


class RetentionService:
    """Deletes what is older than the settings allow, soon after the start and then once a day.

    ``remove_files`` removes the files to which only deleted rows referred.
    """

    def __init__(
        self,
        store: Store,
        settings: Callable[[], RetentionSettings],
        remove_files: Callable[[], None],
        count: CountDeleted = lambda *_: None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._remove_files = remove_files
        self._count = count
        self._deleted: Counter[str] = Counter()
        self._stopped = threading.Event()

    async def run(self) -> None:
        """Delete until cancelled; a failure of the store only delays the deletion."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="retention") as thread:
            try:
                while True:
                    try:
                        await loop.run_in_executor(thread, self.run_if_due)
                    except (StoreBusy, RoundEnded) as error:
                        log.info("retention.postponed", reason=str(error))
                    await asyncio.sleep(LOOK_SECONDS)
            finally:
                self._stopped.set()

    def run_if_due(self) -> bool:
        """Do a round of deletions if one is due and no other process does it; return whether it was done."""
        if not self._settings().is_on:
            return False
        name, holder = MaintenanceName.RETENTION, self._store.process
        with self._store.view() as tx:
            task, now = tx.system.maintenance.find_task(name), tx.now
        if task is not None and task.finished_at is not None and now - ROUND < task.finished_at <= now:
            return False
        with self._store.begin() as tx:
            if tx.system.maintenance.claim(name, holder, CLAIM) is None:
                return False
        self._deleted = Counter()
        self._run_round(self._settings())
        while self._store.return_space():
            self._pause()
        with self._store.begin() as tx:
            result = json.dumps(self._deleted)
            tx.system.maintenance.save_progress(name, holder, finished_at=tx.now, result=result, held_until=tx.now)
        self._remove_files()
        log.info("retention.done", **self._deleted)
        return True

    def _run_round(self, settings: RetentionSettings) -> None:
        now = self._store.now
        if settings.calls_days:
            self._delete_old_jobs(now - timedelta(days=settings.calls_days), whole=False)
        if settings.messages_days:
            self._delete_conversations(now - timedelta(days=settings.messages_days))
        if settings.jobs_days:
            self._delete_old_jobs(now - timedelta(days=settings.jobs_days), whole=True)
            self._delete_inbox()

    def _delete_conversations(self, before: datetime) -> None:
        """Delete idle conversations; one that continues meanwhile stays."""
        kept: set[int] = set()
        while True:
            with self._store.view() as tx:
                idle = tx.conversations.retention.list_idle_conversations(before, kept, CONVERSATIONS)
                groups: dict[int, frozenset[str]] = {}
                for conversation_id in idle:
                    try:
                        groups[conversation_id] = tx.conversations.retention.list_conversation_jobs(conversation_id)
                    except Conflict:  # a job of the conversation is open
                        kept.add(conversation_id)
                owners = tx.conversations.retention.find_owners(list(groups.values()))
            if not idle:
                return
            done: list[int] = []
            for index, conversation_id in enumerate(groups):
                if self._delete_conversation(conversation_id, owners, index, done, before):
                    done.append(index)
                else:
                    kept.add(conversation_id)

    def _delete_conversation(
        self, conversation_id: int, owners: TextOwners, index: int, done: Sequence[int], before: datetime
    ) -> bool:
        self._pause()
        try:
            with self._store.begin() as tx:
                retention = tx.conversations.retention
                jobs = owners.groups[index]
                is_idle = retention.get_conversation(conversation_id).last_message_at < before
                if not is_idle or len(retention.find_unneeded(jobs, tx.now)) < len(jobs):
                    return False
                retention.carry_out(owners.plan_group(index, done, conversation_id), ACTOR, facts=False)
        except (Conflict, NotFound):  # the conversation continued, or an operator deleted it
            return False
        self._add("conversations", 1)
        return True

    def _delete_old_jobs(self, before: datetime, *, whole: bool) -> None:
        """Delete the texts of the calls of old jobs; with ``whole``, also the jobs that have no messages any more."""
        after = (FIRST, "")
        while True:
            with self._store.view() as tx:
                retention = tx.conversations.retention
                found = retention.list_old_jobs(before, after, JOBS, with_calls=not whole)
                ids = [job_id for _, job_id in found]
                ids = retention.find_unneeded(retention.find_without_messages(ids) if whole else ids, before)
                chunks = [frozenset(ids[start : start + CHUNK]) for start in range(0, len(ids), CHUNK)]
                owners = retention.find_owners(chunks)
            if not found:
                return
            after = found[-1]
            done: list[int] = []
            for index, jobs in enumerate(chunks):
                if self._delete_chunk(owners, index, done, before, whole=whole):
                    done.append(index)
                    self._add("jobs" if whole else "calls", len(jobs))

    def _delete_chunk(
        self, owners: TextOwners, index: int, done: Sequence[int], before: datetime, *, whole: bool
    ) -> bool:
        """Delete the texts of a chunk of jobs, and the jobs; a chunk with a job that is needed again stays."""
        self._pause()
        jobs = owners.groups[index]
        with self._store.begin() as tx:
            retention = tx.conversations.retention
            unneeded = retention.find_unneeded(jobs, before)
            if whole:
                unneeded = retention.find_without_messages(unneeded)
            if len(unneeded) < len(jobs):
                return False
            retention.delete_calls(owners.plan_group(index, done))
            if whole:
                retention.delete_jobs(sorted(jobs))
        return True

    def _delete_inbox(self) -> None:
        after = 0
        while True:
            self._pause()
            with self._store.begin() as tx:
                after, deleted = tx.conversations.retention.delete_inbox(after, INBOX_CHUNK)
            self._add("inbox", deleted)
            if not after:
                return

    def _add(self, kind: str, number: int) -> None:
        self._deleted[kind] += number
        self._count(kind, number)

    def _pause(self) -> None:
        """Let others write, and renew the claim; raises ``RoundEnded``."""
        if self._stopped.wait(PAUSE_SECONDS):
            raise RoundEnded("this process stops")
        with self._store.begin() as tx:
            if tx.system.maintenance.claim(MaintenanceName.RETENTION, self._store.process, CLAIM) is None:
                raise RoundEnded("another process deletes")
