"""What the trials know of a peer: how it starts, which processes it has, and how a user talks to it."""

import asyncio
import contextlib
import re
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import httpx
import psutil

from benchmarks.model import Model
from benchmarks.processes import MIB, bare_environment, ended

STARTS_WITHIN = 120.0
LOOK_SECONDS = 0.1
ANSWER_WITHIN = 60.0
LOG = "output.log"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Shared by all clients, because each would otherwise read all certificates; the servers speak plain HTTP."""

QUESTION = (
    "Question {key}: please tell me, as briefly as you can, what the weather will be like in the Alps on Saturday, "
    "and what I should take along for a walk of three hours."
)
_KEY = re.compile(r"Question ([\w-]+):")


def question(key: str) -> str:
    """Return a text that the model repeats, so that its answer tells what it answers."""
    return QUESTION.format(key=key)


def keys_of(text: str) -> list[str]:
    """Return the keys of the questions in a text, in their order."""
    return [str(key) for key in _KEY.findall(text)]


class Unanswered(Exception):
    """Raised when a peer refuses a question or does not answer it in time."""


class Talk(ABC):
    """A conversation of one user with a peer, which notes each answer that reaches the user."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.answers: list[str] = []
        self.answered_at: dict[str, float] = {}
        """When the first answer to a question came, by its key, in seconds of the clock of ``time.perf_counter``."""
        self.offers = 0
        """How often the peer said that it continues only when the user says so."""
        self.refusals = 0
        self._changed = asyncio.Event()

    @abstractmethod
    async def send(self, key: str) -> None:
        """Send the question with this key, again under the same id where the peer takes one, and do not wait."""

    @abstractmethod
    async def reconnect(self) -> None:
        """Connect again after a restart of the peer, as its own client does."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""

    async def ask(self, key: str) -> float:
        """Send a question and return the seconds until the whole answer is there; raises ``Unanswered``."""
        started, refusals = time.perf_counter(), self.refusals
        await self.send(key)
        if not await self.until(lambda: key in self.answered_at or self.refusals > refusals, ANSWER_WITHIN):
            raise Unanswered
        if key not in self.answered_at:
            raise Unanswered
        return self.answered_at[key] - started

    async def until(self, condition: Callable[[], bool], patience: float) -> bool:
        """Wait for a condition on the answers; return false if it does not become true in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        return condition()

    def note_answer(self, text: str) -> None:
        """Note an answer."""
        self.note_history((*self.answers, text))

    def note_history(self, texts: Sequence[str]) -> None:
        """Note all answers that the peer has stored for this conversation."""
        self.answers, now = list(texts), time.perf_counter()
        for key in (key for text in texts for key in keys_of(text)):
            self.answered_at.setdefault(key, now)
        self._changed.set()

    def note_refusal(self) -> None:
        """Note that the peer refused a question."""
        self.refusals += 1
        self._changed.set()


class RequestTalk(Talk):
    """A conversation over HTTP: a request for each question, and after a restart what the peer has stored."""

    def __init__(self, name: str, url: str, **headers: str) -> None:
        super().__init__(name)
        self.http = open_client(url, **headers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._restarted = False

    @abstractmethod
    async def request_answer(self, key: str) -> str:
        """Send a question and return its answer; raises ``httpx.HTTPError``."""

    @abstractmethod
    async def read_answers(self) -> Sequence[str]:
        """Return the answers that the peer has stored for this conversation; raises ``httpx.HTTPError``."""

    async def send(self, key: str) -> None:
        """Begin the request."""
        self._begin(self._request(key))

    async def reconnect(self) -> None:
        """From now on, read what the peer has stored: the requests ended with the killed process."""
        self._restarted = True
        self._begin(self._follow_history())

    async def close(self) -> None:
        """End all requests."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.http.aclose()

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _request(self, key: str) -> None:
        try:
            answer = await self.request_answer(key)
        except httpx.HTTPError:  # the peer refused, or its process was killed
            self.note_refusal()
        else:
            if not self._restarted:
                self.note_answer(answer)

    async def _follow_history(self) -> None:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                self.note_history(await self.read_answers())
            await asyncio.sleep(5 * LOOK_SECONDS)


def open_client(url: str, **headers: str) -> httpx.AsyncClient:
    """Return a client of a server on this machine."""
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(
        base_url=url, headers=headers, timeout=ANSWER_WITHIN, trust_env=False, verify=NO_TLS, limits=limits
    )


@dataclass(frozen=True)
class Running:
    """A peer that runs: its processes, and how a conversation is opened."""

    pids: Sequence[int]
    open_talk: Callable[[str], Awaitable[Talk]]

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the peer, with their children."""
        found: dict[int, psutil.Process] = {}
        for pid in self.pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                parent = psutil.Process(pid)
                found.update({one.pid: one for one in (parent, *parent.children(recursive=True))})
        return list(found.values())

    def memory(self) -> float:
        """Return the MiB that its processes have in memory together (RSS)."""
        return sum(one.memory_info().rss for one in self.processes()) / MIB

    def cpu_seconds(self) -> float:
        """Return the CPU time that its processes have used so far."""
        return sum(one.cpu_times().user + one.cpu_times().system for one in self.processes())

    def kill(self) -> None:
        """End all its processes with SIGKILL."""
        for one in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()


class Peer(ABC):
    """A program that answers chat messages; one instance has one folder, in which it may run again."""

    name: ClassVar[str]
    requirements: ClassVar[tuple[str, ...]] = ()
    """What pip installs; the first names the version in the table. Empty: it is in this environment."""
    command: ClassVar[str]
    """How it is started, for a reader of the table."""
    door: ClassVar[str]
    """How messages reach it."""

    def __init__(self, folder: Path, programs: Path, model: Model) -> None:
        self.folder = folder
        self.programs = programs
        self.model = model

    @abstractmethod
    def running(self) -> contextlib.AbstractAsyncContextManager[Running]:
        """Run it until the block ends."""

    def program(self, name: str) -> str:
        """Return the path of a program of its environment."""
        return str(self.programs / name)

    @asynccontextmanager
    async def process(self, *command: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a process in the peer's folder, which is its home, with a model account in its environment."""
        account = {"OPENAI_API_KEY": "sk-nobody", "OPENAI_BASE_URL": self.model.url, "OPENAI_API_BASE": self.model.url}
        variables = {**bare_environment(), **account, "HOME": str(self.folder), "NO_PROXY": "*", **environment}
        variables.pop("PYTHONPATH", None)
        with (self.folder / LOG).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=self.folder,
                env=variables,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            await asyncio.shield(asyncio.create_task(ended(process)))

    async def until_ready(self, process: asyncio.subprocess.Process, is_ready: Callable[[], Awaitable[bool]]) -> None:
        """Wait until it works; raises ``RuntimeError`` with the end of its output."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STARTS_WITHIN):
                while process.returncode is None:
                    with contextlib.suppress(OSError, httpx.HTTPError):
                        if await is_ready():
                            return
                    await asyncio.sleep(LOOK_SECONDS)
        tail = (self.folder / LOG).read_text(errors="replace")[-1500:]
        raise RuntimeError(f"{self.name} did not start: {tail}")
