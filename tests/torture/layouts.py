"""The layouts that are tortured: what each has in common, and ``maestro up``; ``several_processes`` has the rest."""

import asyncio
import contextlib
import shutil
import signal
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from maestro.bootstrap.up import READY
from temporal.server_process import read_record
from tests.support import postgresql
from tests.support.crashing import (
    busy_seconds,
    disarm,
    forget_recording,
    recording,
    release_of,
    set_lock_wait,
    set_release,
)
from tests.support.database import dump
from tests.support.evidence import Evidence
from tests.support.four_platforms import OnDiscord, OnSlack, OnTelegram, OnWhatsApp, Platforms
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.locking import cut_connections, locked
from tests.support.mounts import full_disk, mount_disk, unmount_disk
from tests.support.ports import free_ports
from tests.support.running import Maestro
from tests.support.two_hosts import Forwarder, Streams
from tests.torture.plan import Disturbance, Harm, Menu

MAESTRO, TEMPORAL, BOTH = "maestro", "temporal", "maestro and temporal"
BUSY_SECONDS = 0.5
"""How long the store waits for its lock, instead of 30 seconds; ``SECONDS`` of a held lock are meant for it."""
BUSY_SECONDS_OF_SEVERAL = 1.9
"""The same with several processes: those that start at once need the lock for a second on a small machine."""
DISK_MEGABYTES = 512
POINT_PATIENCE = 3.0
"""Seconds for an armed point to be reached; the process is killed where it is then."""
REFUSAL, MOST_STARTS = 1, 5
"""The exit code of a process that cannot start, and how often one is started until it is ready."""
RELEASES = "1000.0"
"""The beginning of the numbers of releases that replace each other."""
PLATFORMS = ("discord", "slack", "telegram", "whatsapp")
STREAMING = {"streaming": True, "streamingSeconds": 0.2}
AGENTS = [{"slug": "helper"}, {"slug": "handy", "tools": ["note"]}, {"slug": "ada"}, {"slug": "bob"}]


@dataclass
class Site:
    """What is around the processes of a layout: where its store and its ports are, and what can be cut."""

    evidence: Evidence
    web_port: int
    api_port: int
    ways: Mapping[tuple[Harm, str], Forwarder]
    """What connections are passed on by, under the disturbance that cuts it and the name that it has there."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Why a disturbance is not possible here, by its name."""

    def harms(self, victims: tuple[str, ...]) -> Mapping[Harm, tuple[str, ...]]:
        """Return what may be done besides kills, each with what it may be done to."""
        harms = defaultdict[Harm, tuple[str, ...]](tuple, {Harm.STOP: victims})
        for harm in (Harm.LOCK, Harm.CLIENTS, Harm.UPGRADE, Harm.DATABASE if postgresql.wanted() else Harm.DISK):
            harms[harm] = ("",)
        for harm, name in self.ways:
            harms[harm] += (name,)
        return {harm: targets for harm, targets in harms.items() if harm.value not in self.skipped}


class Member(Protocol):
    """One of the processes of a layout."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        ...

    async def begin(self) -> None:
        """Start it without waiting."""
        ...

    async def is_ready(self) -> None:
        """Return when it is ready; raises ``AssertionError`` when it has ended before."""
        ...

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send it a signal, and return its exit code; harmless when it has ended."""
        ...

    @property
    def refuses(self) -> bool:
        """Whether it ended before it was ready, with a reason for people."""
        ...

    def output(self) -> str:
        """Return what it has printed."""
        ...


REASONS, BUG = ("maestro: ", "maestro.domain.errors."), "maestro: unexpected"
"""How a line begins that names the reason of an end: the command prints a sentence, Python the class of the error."""
STORE_WORDS = ("store", "database", "disk", "no space")
"""A reason that is about the store has one of these words."""

HARMS_OF_THE_STORE = (Harm.LOCK, Harm.DISK, Harm.DATABASE, Harm.STOP)
"""While these last, the store cannot be used: a process may be stopped while it holds the lock of SQLite."""


def is_refusal(output: Sequence[str], ready: str) -> bool:
    """Return whether a process with this output was never ready, and ended because the store cannot be used."""
    reason = next((line for line in reversed(output) if line.startswith(REASONS)), BUG)
    is_of_store = not reason.startswith(BUG) and any(word in reason.lower() for word in STORE_WORDS)
    return is_of_store and not any(ready in line for line in output)


class Layout(ABC):
    """A running Maestro that is disturbed."""

    def __init__(self, site: Site, victims: tuple[str, ...]) -> None:
        self.site = site
        self.evidence = site.evidence
        self.folder = site.evidence.path.parent
        self.menu = Menu(victims, site.harms(victims))
        self.copy_target: Path | None = None
        """Where its data goes when it ends."""
        self.refused = 0
        """How often a process ended at its start because the store could not be used, and was started again."""
        self._may_refuse = False
        """Whether a process may end at its start with a reason, to be started again as by a supervisor."""

    async def apply(self, one: Disturbance) -> Harm:
        """Do what a disturbance says, and return what was done; processes that died are started without waiting."""
        await self._start_again()
        self._may_refuse |= one.harm in HARMS_OF_THE_STORE
        match one.harm:
            case Harm.KILL:
                await self.kill(one.target)
            case Harm.CRASH:
                return Harm.CRASH if await self.crash(one.target) else Harm.KILL
            case Harm.STOP:
                await self.stop(one.target, one.seconds)
            case Harm.UPGRADE:
                await self.recover()
                number = int(release_of(self.folder).rpartition(".")[2] or 0)
                set_release(self.folder, f"{RELEASES}.{number + 1}")
                await self.upgrade()
            case _:
                await self._disturb_surroundings(one)
        return one.harm

    async def recover(self) -> None:
        """Return when every process is ready; raises ``AssertionError`` when one has ended by itself."""
        for _ in range(MOST_STARTS):
            await self._start_again()
            try:
                for one in self.members():
                    await one.is_ready()
            except AssertionError:
                if all(one.alive for one in self.members()):
                    raise
            else:
                self._may_refuse = False
                return
        raise AssertionError([one.output() for one in self.members() if not one.alive])

    async def _start_again(self) -> None:
        """Start processes again, as a supervisor does, that ended with a reason while the store could not be used."""
        for one in self.members():
            if not one.alive:
                assert await one.end() == REFUSAL, one.output()
                assert self._may_refuse, one.output()
                assert one.refuses, one.output()
                self.refused += 1
                await one.begin()

    async def _disturb_surroundings(self, one: Disturbance) -> None:
        match one.harm:
            case Harm.LOCK:
                # As many times longer as the store waits longer for the lock.
                longer = busy_seconds(self.folder) / BUSY_SECONDS
                await keep_up(locked(self.evidence.path), one.seconds * longer)
            case Harm.DISK:
                await keep_up(full_disk(self.folder), one.seconds)
            case Harm.DATABASE if not one.target:
                await asyncio.to_thread(cut_connections, self.evidence.path)
            case _:
                way = self.site.ways[one.harm, one.target]
                way.cut()
                await asyncio.sleep(one.seconds)
                way.mend()

    def record(self) -> None:
        """Begin to record the named points that are passed."""
        forget_recording(self.folder)

    def passed(self) -> list[str]:
        """Return the named points that were passed since then."""
        return recording(self.folder).points()

    @abstractmethod
    def members(self) -> Sequence[Member]:
        """Return its processes."""

    @abstractmethod
    async def kill(self, target: str) -> None:
        """Kill what is meant, and start it again."""

    @abstractmethod
    async def crash(self, point: str) -> bool:
        """Let a process die at a point, and start it again; false if none came there, and one was killed elsewhere."""

    @abstractmethod
    async def stop(self, target: str, seconds: float) -> None:
        """Let what is meant stand still for so long."""

    @abstractmethod
    async def upgrade(self) -> None:
        """Put the next release, which new processes are, in the place of this one."""


def sections(platforms: Platforms, model_port: int) -> dict[str, Any]:
    """Return the sections of the configuration that all layouts share."""
    places = (OnSlack(platforms.slack), OnTelegram(platforms.telegram), OnWhatsApp(platforms.whatsapp))
    discord = platforms.discord
    client = discord.user("nobody")
    options: dict[str, Mapping[str, Any]] = {place.name: place.options for place in places}
    options["discord"] = {**OnDiscord(discord, client, discord.direct(client)).options, **STREAMING}
    account = {"name": "main", "provider": "openai", "model": "gpt-4o-mini", "apiKey": "key-of-the-account"}
    return {
        "agents": AGENTS,
        "connectors": {
            **options,
            "slack": {**options["slack"], **STREAMING},
            # Instead of a minute for each chunk of which nobody knows whether it was sent.
            "whatsapp": {**options["whatsapp"], "statusSeconds": 3},
        },
        "llm": {
            "accounts": [{**account, "baseUrl": f"http://127.0.0.1:{model_port}/v1"}],
            "totalTimeoutSeconds": 30,
            "cooldownMinutes": [0.005, 0.01],
            "breaker": {"openSeconds": 1},
        },
        "jobs": {
            "backoffBaseMinutes": 0.005,
            "maxAttempts": 100,
            "crashLimit": 1000,
            "dispatchSeconds": 0.1,
            "reconcileSeconds": 1,
            "stopPollSeconds": 0.1,
            "drainSeconds": 0.5,
        },
        "routing": {"messagesPerMinute": 10_000},
        "logs": {"level": "error"},
        "schedules": {"shortestIntervalSeconds": 1, "followSeconds": 0.2},
    }


@asynccontextmanager
async def forwarder(ports: Callable[[], Sequence[int]]) -> AsyncIterator[Forwarder]:
    """Pass connections on, from another port, to the first port of this machine that takes them."""

    async def reach() -> Streams:
        for port in ports():
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        raise ConnectionRefusedError

    (own,) = free_ports(1)
    way = Forwarder(own, reach)
    await way.start()
    try:
        yield way
    finally:
        await way.close()


async def keep_up(harm: AbstractContextManager[None], seconds: float) -> None:
    """Let something that is harmful last so long."""
    await asyncio.to_thread(harm.__enter__)
    try:
        await asyncio.sleep(seconds)
    finally:
        await asyncio.to_thread(harm.__exit__, None, None, None)


@contextmanager
def own_disk(data: Path) -> Iterator[dict[str, str]]:
    """Let a data folder be on a disk that can be filled; gives why not where it is not, by the disturbance."""
    if postgresql.wanted():
        yield {}
        return
    refused = mount_disk(data, DISK_MEGABYTES)
    try:
        yield {Harm.DISK.value: refused} if refused else {}
    finally:
        if not refused:
            unmount_disk(data)


@asynccontextmanager
async def copy_data_at_end(layout: Layout, folder: Path) -> AsyncIterator[None]:
    """Copy what is left in a folder at the end of a block, the output of processes, and rows that are elsewhere."""
    try:
        yield
    finally:
        if layout.copy_target is not None:
            shutil.copytree(folder, layout.copy_target, dirs_exist_ok=True, ignore_dangling_symlinks=True)
            (layout.copy_target / "output.txt").write_text("\n".join(one.output() for one in layout.members()))
            if postgresql.wanted():
                (layout.copy_target / "store.txt").write_text(dump(layout.evidence.path))


async def connected(layout: Layout, platforms: Platforms) -> None:
    """Return when every platform is connected.

    Discord and Slack are asked too: the rows of a killed process say "running" until the next process reports.
    """
    platforms.whatsapp.postman.url = f"http://127.0.0.1:{layout.site.web_port}/platforms/whatsapp/default"
    sql = "SELECT platform FROM connectors WHERE state = 'running'"

    def is_connected() -> bool:
        running = {row["platform"] for row in layout.evidence.rows(sql)}
        return bool(running >= set(PLATFORMS) and platforms.discord.connected and platforms.slack.socket.sockets)

    await until(is_connected, what="connectors of all platforms")


@dataclass
class UpProcess:
    """The process of ``maestro up``."""

    maestro: Maestro
    since: int = 0
    log_size: int = 0
    """The bytes of its log before its last start."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.maestro.alive

    async def begin(self) -> None:
        """Start it without waiting."""
        log = self.maestro.log
        self.log_size = log.stat().st_size if log.exists() else 0
        self.since = self.maestro.begin()

    async def is_ready(self) -> None:
        """Return when it is ready."""
        await self.maestro.says(READY, self.since)

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it."""
        return await (self.maestro.kill(number) if self.alive else self.maestro.died())

    @property
    def refuses(self) -> bool:
        """Whether it ended before it was ready, with a reason for people."""
        errors = self.maestro.log.read_bytes()[self.log_size :].decode(errors="replace")
        return is_refusal([*self.maestro.said[self.since :], *errors.splitlines()], READY)

    def output(self) -> str:
        """Return what it has printed."""
        return self.maestro.story()


class SingleProcess(Layout):
    """``maestro up``: one process, and its Temporal server."""

    def __init__(self, maestro: Maestro, site: Site) -> None:
        super().__init__(site, (MAESTRO, MAESTRO, TEMPORAL, BOTH))
        self._maestro = maestro
        self._whole = UpProcess(maestro)

    def members(self) -> Sequence[Member]:
        """Return the one process."""
        return (self._whole,)

    async def kill(self, target: str) -> None:
        """Kill it, its server, or both; a server that is not there is not killed instead of Maestro."""
        killed = target != MAESTRO and self._signal_temporal(signal.SIGKILL)
        if target != TEMPORAL or not killed:
            await self._whole.end()
            await self._whole.begin()

    async def crash(self, point: str) -> bool:
        """Let it die at a point."""
        self._maestro.arm(point)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POINT_PATIENCE):
                await self._maestro.died()
        reached = not disarm(self.folder)
        code = await (self._maestro.died() if reached else self._whole.end())
        assert code == -signal.SIGKILL, self._whole.output()
        await self._whole.begin()
        return reached

    async def stop(self, target: str, seconds: float) -> None:
        """Stop it, its server, or both."""
        stopped = target != MAESTRO and self._signal_temporal(signal.SIGSTOP)
        if target != TEMPORAL:
            self._maestro.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        if target != TEMPORAL:
            self._maestro.send_signal(signal.SIGCONT)
        if stopped:
            self._signal_temporal(signal.SIGCONT)

    async def upgrade(self) -> None:
        """End it in good order, and start the next release (docs/howto/upgrade-without-downtime.md)."""
        assert await self._whole.end(signal.SIGTERM) == 0, self._whole.output()
        await self._whole.begin()

    def _signal_temporal(self, number: signal.Signals) -> bool:
        """Send its Temporal server a signal; false when there is none that runs."""
        record = read_record(self._maestro.data / "temporal.json")
        with contextlib.suppress(ProcessLookupError):
            if record is not None and record.is_running():
                self._maestro.kill_temporal(number)
                return True
        return False


@asynccontextmanager
async def one_process(folder: Path, llm: LLMServer, platforms: Platforms) -> AsyncIterator[SingleProcess]:
    """Run ``maestro up`` in a folder."""
    async with forwarder(lambda: [llm.port]) as model:
        maestro = Maestro(folder, llm, sections(platforms, model.port))
        with own_disk(maestro.data) as skipped:
            set_lock_wait(maestro.data, BUSY_SECONDS)
            ways = {(Harm.MODEL, ""): model}
            one = SingleProcess(
                maestro, Site(Evidence(maestro.data), maestro.web_port, maestro.webui_port, ways, skipped)
            )
            async with copy_data_at_end(one, folder):
                try:
                    await maestro.start()
                    await connected(one, platforms)
                    yield one
                finally:
                    await maestro.end()
