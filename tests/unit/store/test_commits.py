"""What has happened is committed however long the store cannot be written, and never twice."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from maestro.domain.errors import NotFound, StoreBusy, StoreFull
from maestro.store.store import Store, commit_persistently, result_despite_cancellation, utc_now
from tests.support.fresh_store import fresh_store, path_of
from tests.support.instance import until
from tests.support.locking import locked

BUSY_SECONDS = 0.02


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    fresh_store(tmp_path / "maestro.db").close()
    store = Store(tmp_path / "maestro.db", utc_now, BUSY_SECONDS)
    yield store
    store.close()


def write(store: Store) -> int:
    """Commit one line; return how many there are."""
    with store.begin() as tx:
        tx.system.audit.add_entry("ada", "wrote")
    with store.view() as tx:
        return len(tx.system.audit.list_latest_entries(10))


def spool_into(spooled: list[str]) -> Callable[[], Awaitable[None]]:
    """Return a spool that notes its calls."""

    async def spool() -> None:
        spooled.append("once")

    return spool


async def failed_once(store: Store) -> None:
    """Return when a write has failed."""
    await until(lambda: store.write_history.failures > 0)


async def test_a_commit_is_repeated_until_the_lock_is_free(store: Store) -> None:
    spooled: list[str] = []
    with locked(path_of(store)):
        trying = asyncio.create_task(commit_persistently(store, partial(write, store), spool_into(spooled)))
        await failed_once(store)
        await until(lambda: spooled != [])
        assert not trying.done()
    assert await trying == 1
    assert spooled == ["once"]


async def test_what_a_commit_raises_itself_is_raised_at_once(store: Store) -> None:
    def refuse() -> None:
        raise NotFound("there is no such job")

    with pytest.raises(NotFound):
        await commit_persistently(store, refuse)


async def test_a_commit_that_succeeds_at_once_is_not_spooled(store: Store) -> None:
    spooled: list[str] = []
    assert await commit_persistently(store, partial(write, store), spool_into(spooled)) == 1
    assert spooled == []


async def test_a_late_commit_is_spooled_while_it_waits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maestro.store.store.LATE_SECONDS", 0.01)
    patient = Store(path_of(store))
    spooled: list[str] = []
    with locked(path_of(store)):
        trying = asyncio.create_task(commit_persistently(patient, partial(write, patient), spool_into(spooled)))
        await until(lambda: spooled != [])
        assert not patient.write_history.failures
    assert await trying == 1
    patient.close()


async def test_a_cancelled_commit_is_not_repeated(store: Store) -> None:
    with locked(path_of(store)):
        trying = asyncio.create_task(commit_persistently(store, partial(write, store)))
        await failed_once(store)
        trying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trying
        tried = store.write_history.failures
    assert write(store) == 1
    assert tried <= 3


async def test_a_commit_under_way_is_made_before_its_caller_is_cancelled(store: Store) -> None:
    trying = asyncio.create_task(commit_persistently(store, partial(write, store)))
    await asyncio.sleep(0)
    trying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trying
    assert write(store) == 2


@pytest.mark.parametrize("free", [True, False], ids=["written", "locked"])
async def test_what_finished_after_a_cancellation_is_committed_first(store: Store, free: bool) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def send() -> str:
        begun.set()
        await over.wait()
        return "receipt"

    async def deliver() -> None:
        receipt = await result_despite_cancellation(send())
        assert receipt == "receipt"
        await commit_persistently(store, partial(write, store))

    delivering = asyncio.create_task(deliver())
    await begun.wait()
    delivering.cancel()
    await asyncio.sleep(0)
    over.set()
    await _cancelled(delivering, store, free=free)
    assert write(store) == 1 + free


async def _cancelled(task: "asyncio.Task[None]", store: Store, *, free: bool) -> None:
    if free:
        with pytest.raises(asyncio.CancelledError):
            await task
        return
    with locked(path_of(store)), pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.sqlite_only(reason="only a file has a reserve on the disk")
async def test_a_full_disk_gets_the_room_of_the_reserve(store: Store) -> None:
    store.create_reserve()
    reserve = path_of(store).with_name("maestro.db-reserve")
    tries = 0

    def commit() -> str:
        nonlocal tries
        tries += 1
        if reserve.exists():
            raise StoreFull("the disk is full")
        return "written"

    assert await commit_persistently(store, commit) == "written"
    assert tries == 2


async def test_a_spool_that_has_no_room_is_tried_again(store: Store) -> None:
    spooled: list[int] = []

    async def spool() -> None:
        spooled.append(len(spooled))
        if len(spooled) == 1:
            raise OSError(28, "No space left on device")

    assert await commit_persistently(store, _third_time(), spool) == "written"
    assert spooled == [0, 1]


def _third_time() -> Callable[[], str]:
    tries = iter([StoreBusy("locked"), StoreBusy("locked")])

    def commit() -> str:
        failure = next(tries, None)
        if failure is not None:
            raise failure
        return "written"

    return commit
