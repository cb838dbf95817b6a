"""One process at a time works for a connector's account and token; who waits takes over at once."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from connectors.base import Connector
from maestro.connector_runtime import host
from maestro.connector_runtime.host import hold_lease
from maestro.domain.errors import ConfigurationError
from maestro.installation.data_folder import FileLock
from maestro.installation.leases import FileLeases
from tests.support.bot import Bot

ROOT = Path(__file__).parents[2]
HOLDER = """
import asyncio, sys
from pathlib import Path
from maestro.connector_runtime.host import hold_lease
from maestro.installation.leases import FileLeases
from tests.support.bot import Bot

async def hold():
    async with hold_lease(FileLeases(Path(sys.argv[1]), "holder"), Bot(*sys.argv[2:]), print):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(hold())
"""

OWNER = """
import sys
from pathlib import Path
from maestro.installation.leases import FileLeases

leases = FileLeases(Path(sys.argv[1]), sys.argv[2])
print("alive", flush=True)
sys.stdin.read()
"""


def hold(folder: Path, *bot: str) -> subprocess.Popen[str]:
    """Return another process that holds the lease of a bot until its input ends."""
    command = [sys.executable, "-c", HOLDER, str(folder), *bot]
    holder = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


class Waiting:
    """Somebody who wants a lease, and what they hear."""

    def __init__(self, folder: Path, connector: Connector) -> None:
        self.heard: list[str] = []
        self.told = asyncio.Event()
        self.held = asyncio.Event()
        self.task = asyncio.create_task(self._hold(folder, connector))

    async def _hold(self, folder: Path, connector: Connector) -> None:
        async with hold_lease(FileLeases(folder, "waiting"), connector, self._hear):
            self.held.set()

    def _hear(self, line: str) -> None:
        self.heard.append(line)
        self.told.set()


@pytest.fixture(autouse=True)
def _scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LOOK_SECONDS", 0.01)


async def test_a_kill_frees_the_lease_at_once(tmp_path: Path) -> None:
    holder = await asyncio.to_thread(hold, tmp_path, "slack", "main")
    waiting = Waiting(tmp_path, Bot("slack", "main"))
    await waiting.told.wait()
    assert waiting.heard == [f"Process {holder.pid} runs the connector slack/main; this process takes over after it."]
    assert not waiting.held.is_set()
    holder.kill()
    await waiting.task
    assert waiting.heard[1:] == ["This process has taken over the connector slack/main."]
    holder.communicate()


async def test_two_accounts_do_not_share_a_token(tmp_path: Path) -> None:
    holder = await asyncio.to_thread(hold, tmp_path, "slack", "one", "digest")
    waiting = Waiting(tmp_path, Bot("slack", "two", "digest"))
    await waiting.told.wait()
    assert not waiting.held.is_set()
    holder.communicate()
    await waiting.task


async def test_other_accounts_do_not_wait(tmp_path: Path) -> None:
    holder = await asyncio.to_thread(hold, tmp_path, "slack", "one", "digest")
    await Waiting(tmp_path, Bot("slack", "two", "other")).task
    await Waiting(tmp_path, Bot("telegram", "one")).task
    holder.communicate()


async def test_who_gives_up_waiting_holds_nothing(tmp_path: Path) -> None:
    holder = await asyncio.to_thread(hold, tmp_path, "slack", "one", "digest")
    waiting = Waiting(tmp_path, Bot("slack", "two", "digest"))
    await waiting.told.wait()
    waiting.task.cancel()
    await asyncio.wait([waiting.task])
    assert FileLock(tmp_path / "slack-two.lock").take_lock()
    holder.communicate()


async def test_a_lease_that_cannot_be_written_is_named_with_its_fix(tmp_path: Path) -> None:
    (tmp_path / "slack-main.lock").mkdir()
    with pytest.raises(ConfigurationError, match=r"lease of slack/main .* writable for this user"):
        async with hold_lease(FileLeases(tmp_path, "here"), Bot("slack", "main"), print):
            pass


def test_a_lock_can_be_shared_but_not_with_one_who_wants_it_alone(tmp_path: Path) -> None:
    first, second, third = (FileLock(tmp_path / "lock") for _ in range(3))
    assert first.take_lock(shared=True)
    assert second.take_lock(shared=True)
    assert not third.take_lock()
    first.release_lock()
    second.release_lock()
    assert third.take_lock()
    assert not first.take_lock(shared=True)


def test_claims_belong_to_processes_that_are_told_to_live_by_their_locks(tmp_path: Path) -> None:
    alive, here = FileLeases(tmp_path, "alive"), FileLeases(tmp_path, "here")
    killed = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), "killed"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == "alive\n"
    assert here.find_gone(["alive", "killed", "here"]) == frozenset()
    killed.kill()
    killed.communicate()
    assert here.find_gone(["alive", "killed", "here", "", "of-another-folder"]) == {"killed", "", "of-another-folder"}
    assert not (tmp_path / "process-killed.lock").exists()
    alive.close()
    assert here.find_gone(["alive"]) == {"alive"}
