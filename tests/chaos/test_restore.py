"""An older backup of the store takes its place: clients that were connected before hear everything that is new."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.chatting import person
from tests.support.evidence import Evidence
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-restore")]


def back_up(store: Path, copy: Path) -> None:
    """Copy the store as docs/operations.md says, while Maestro runs."""
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def restore(copy: Path, store: Path) -> None:
    """Put a copy in the place of the store, as docs/operations.md says, while Maestro does not run."""
    for suffix in ("-wal", "-shm"):
        store.with_name(store.name + suffix).unlink(missing_ok=True)
    copy.replace(store)


async def test_a_connected_client_hears_every_answer_after_an_older_backup_was_restored(
    maestro: Maestro, evidence: Evidence, llm: LLMServer
) -> None:
    llm.script(reply="{last}")
    store, copy = maestro.data / "maestro.db", maestro.data / "copy.db"
    async with person(maestro.web_port, "restored") as somebody:
        await somebody.say("before please, @helper", "before.")
        await somebody.answered("before.")
        await evidence.ended("before.")
        await asyncio.to_thread(back_up, store, copy)
        for number in range(5):
            await somebody.say(f"lost-{number} please, @helper", f"lost-{number}.")
        await somebody.answered(*(f"lost-{number}." for number in range(5)))
        seen = {frame["id"] for frame in somebody.replies}
        await maestro.kill()
        await asyncio.to_thread(restore, copy, store)
        await maestro.start()
        await somebody.say("after please, @helper", "after.")
        await somebody.say("again please, @helper", "again.")
        await somebody.answered("after.", "again.")
        ids = [frame["id"] for frame in somebody.replies]
    assert somebody.connections == 2
    assert len(ids) == len(set(ids)) == 8
    assert min(ids[6:]) > max(seen)
    assert max(ids) < 2**53  # what JavaScript counts exactly
