"""The interface of a peer: its start, its processes, and the conversations of its users."""

import asyncio
import contextlib
import os
import re
import signal
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import httpx
import psutil

from benchmarks.model import Model
from benchmarks.processes import MIB, bare_environment, end_process

START_TIMEOUT = 120.0
POLL_SECONDS = 0.1
ANSWER_TIMEOUT = 60.0
UNEXPECTED_FORM = (LookupError, TypeError, ValueError)
"""What parsing raises for a response of another form, such as an error with status 200."""
LOG = "output.log"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Shared by all clients, because each would otherwise read all certificates; the servers speak plain HTTP."""

QUESTION = (
    "Question {key}: please tell me, as briefly as you can, what the weather will be like in the Alps on Saturday, "
    "and what I should take along for a walk of three hours."
)
_KEY = re.compile(r"Question ([\w-]+):")


def question_text(key: str) -> str:
    """Return the text of a question; the model repeats it, so that an answer names its question."""
    return QUESTION.format(key=key)


def question_keys(text: str) -> list[str]:
    """Return the keys of the questions in a text, in their order."""
    return [str(key) for key in _KEY.findall(text)]


class PeerFailure(Exception):
    """Raised when a peer cannot be installed, started or measured; its text is the reason that the page gives."""


class UnansweredQuestion(PeerFailure):
    """Raised when a peer refuses a question or does not answer it in time."""


@contextmanager
def peer_failure_from(action: str, *errors: type[Exception]) -> Iterator[None]:
    """Raise ``PeerFailure`` with the action for these errors of a vendor's library, and for ``OSError``."""
    expected: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except expected as error:  # a TimeoutError is an OSError
        raise PeerFailure(f"{action}: {type(error).__name__}: {error}".removesuffix(": ")) from error


class PeerConversation(ABC):
    """A conversation of one user with a peer, with each answer that reached the user."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.answers: list[str] = []
        self.answer_times: dict[str, float] = {}
        """The time of the first answer to each question, by its key, in seconds of ``time.perf_counter``."""
        self.offers = 0
        """How often the peer offered to continue after a confirmation of the user."""
        self.refusals = 0
        self._changed = asyncio.Event()

    @abstractmethod
    async def send(self, key: str) -> None:
        """Send the question with this key without waiting; where the peer takes a message id, it is the same each time.

        Raises ``PeerFailure``.
        """

    @abstractmethod
    async def reconnect(self) -> None:
        """Connect again after a restart of the peer, as its own client does; raises ``PeerFailure``."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""

    async def ask(self, key: str) -> float:
        """Send a question and return the seconds until its answer is complete; raises ``UnansweredQuestion``."""
        started, refusals = time.perf_counter(), self.refusals
        await self.send(key)
        await self.wait_until(lambda: key in self.answer_times or self.refusals > refusals, ANSWER_TIMEOUT)
        if key not in self.answer_times:
            reason = "it refused" if self.refusals > refusals else f"it did not answer within {ANSWER_TIMEOUT:g} s"
            raise UnansweredQuestion(f"{reason}: question {key}")
        return self.answer_times[key] - started

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition on the answers; return false if it is not true in that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        return condition()

    def record_answer(self, text: str) -> None:
        """Record an answer."""
        self.record_history((*self.answers, text))

    def record_history(self, texts: Sequence[str]) -> None:
        """Record all answers that the peer has stored for this conversation."""
        self.answers, now = list(texts), time.perf_counter()
        for key in (key for text in texts for key in question_keys(text)):
            self.answer_times.setdefault(key, now)
        self._changed.set()

    def record_refusal(self) -> None:
        """Record that the peer refused a question."""
        self.refusals += 1
        self._changed.set()


class RequestConversation(PeerConversation):
    """A conversation over HTTP: a request for each question, and after a restart the stored answers."""

    def __init__(self, name: str, url: str, **headers: str) -> None:
        super().__init__(name)
        self.http = open_client(url, **headers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._restarted = False

    @abstractmethod
    async def request_answer(self, key: str) -> str:
        """Send a question and return its answer; raises ``httpx.HTTPError``, or what ``UNEXPECTED_FORM`` lists."""

    @abstractmethod
    async def read_answers(self) -> Sequence[str]:
        """Return the answers that the peer has stored for this conversation; raises as ``request_answer`` does."""

    async def send(self, key: str) -> None:
        """Start the request."""
        self._begin(self._request(key))

    async def reconnect(self) -> None:
        """Poll the stored answers: the requests ended with the killed process."""
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
        except (httpx.HTTPError, *UNEXPECTED_FORM):  # the peer refused or failed, or its process was killed
            self.record_refusal()
        else:
            if not self._restarted:
                self.record_answer(answer)

    async def _follow_history(self) -> None:
        while True:
            with contextlib.suppress(httpx.HTTPError, *UNEXPECTED_FORM):
                self.record_history(await self.read_answers())
            await asyncio.sleep(5 * POLL_SECONDS)


def open_client(url: str, **headers: str) -> httpx.AsyncClient:
    """Return a client of a server on this machine."""
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(
        base_url=url, headers=headers, timeout=ANSWER_TIMEOUT, trust_env=False, verify=NO_TLS, limits=limits
    )


@dataclass(frozen=True)
class PeerProcesses:
    """The processes of a peer, and the function that opens a conversation with it."""

    pids: Sequence[int]
    open_conversation: Callable[[str], Awaitable[PeerConversation]]

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the peer, with their children."""
        found: dict[int, psutil.Process] = {}
        for pid in self.pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                parent = psutil.Process(pid)
                found.update({one.pid: one for one in (parent, *parent.children(recursive=True))})
        return list(found.values())

    def memory(self) -> float:
        """Return the resident memory (RSS) of all its processes in MiB; raises ``PeerFailure`` if none runs."""
        return self._sum(lambda one: float(one.memory_info().rss)) / MIB

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its processes so far; raises ``PeerFailure`` if none runs."""
        return self._sum(lambda one: one.cpu_times().user + one.cpu_times().system)

    def _sum(self, read: Callable[[psutil.Process], float]) -> float:
        values = []
        for one in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):  # a child that ended meanwhile
                values.append(read(one))
        if not values:
            raise PeerFailure("its processes ended by themselves")
        return sum(values)

    def kill(self) -> None:
        """End all its processes with SIGKILL."""
        for one in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()


class Peer(ABC):
    """A program that answers chat messages; an instance has one folder, in which it can be started again."""

    name: ClassVar[str]
    requirements: ClassVar[tuple[str, ...]] = ()
    """What pip installs, each with its version; empty for a peer of this environment."""
    command: ClassVar[str]
    """The command that starts it, for the table."""
    access: ClassVar[str]
    """The interface that takes its messages, for the table."""

    def __init__(self, folder: Path, programs: Path, model: Model) -> None:
        self.folder = folder
        self.programs = programs
        self.model = model

    @classmethod
    def describe_version(cls) -> str:
        """Return each package with its version."""
        return ", ".join(requirement.replace("==", " ") for requirement in cls.requirements)

    @abstractmethod
    def run(self) -> contextlib.AbstractAsyncContextManager[PeerProcesses]:
        """Run it until the block ends; raises ``PeerFailure`` if it does not start."""

    def program(self, name: str) -> str:
        """Return the path of a program of its environment."""
        return str(self.programs / name)

    @asynccontextmanager
    async def process(self, *command: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a process in the peer's folder, which is its home, with a model account in its environment."""
        account = {"OPENAI_API_KEY": "sk-nobody", "OPENAI_BASE_URL": self.model.url, "OPENAI_API_BASE": self.model.url}
        variables = {**bare_environment(), **account, "HOME": str(self.folder), "NO_PROXY": "*", **environment}
        variables.pop("PYTHONPATH", None)
        with (self.folder / LOG).open("ab") as log, peer_failure_from("start"):
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
            await asyncio.shield(asyncio.create_task(_end_session(process)))

    async def wait_until_ready(
        self, process: asyncio.subprocess.Process, is_ready: Callable[[], Awaitable[bool]]
    ) -> None:
        """Wait until it works; raises ``PeerFailure`` with the end of its output."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT):
                while process.returncode is None:
                    with contextlib.suppress(OSError, httpx.HTTPError):
                        if await is_ready():
                            return
                    await asyncio.sleep(POLL_SECONDS)
        tail = (self.folder / LOG).read_text(errors="replace")[-1500:]
        raise PeerFailure(f"{self.name} did not start: {tail}")


async def _end_session(process: asyncio.subprocess.Process) -> None:
    """End a process, then the children that it has left in its session."""
    await end_process(process)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
