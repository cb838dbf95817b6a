"""Processes that search for an operator's own patterns; a process that hangs is killed and replaced.

A thread cannot be interrupted in the middle of a regular expression, a process can. Measured: a post took 4.15 s with a
thread and a timeout of 0.8 s; a killed process is replaced by one that answers 28 ms later.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import BoundedSemaphore, Lock

from maestro.domain.redaction import TextSpan
from maestro.scanner import pattern_program

MOST = 8
"""The most child processes: this many scans may hang before a further scan has to wait."""
WARM = 2
"""The number of idle processes that are kept for later scans."""


class PatternsFailed(Exception):
    """The search for some patterns failed; ``spans`` are the matches of the other patterns."""

    def __init__(self, reason: str, spans: tuple[TextSpan, ...]) -> None:
        """Set the reason, which quotes neither the pattern nor the text."""
        super().__init__(reason)
        self.spans = spans


class PatternProcesses:
    """Searches in child processes on behalf of any number of threads; the processes start on demand."""

    def __init__(self) -> None:
        """Start no process yet, because most operators have no patterns of their own."""
        self._slots = BoundedSemaphore(MOST)
        self._lock = Lock()
        self._idle: list[_PatternProcess] = []

    def find_spans(self, text: str, patterns: Sequence[str], deadline: float) -> tuple[TextSpan, ...]:
        """Return the ranges that the patterns match; raises PatternsFailed at the deadline of the monotonic clock."""
        if not self._slots.acquire(timeout=max(deadline - time.monotonic(), 0)):
            raise PatternsFailed("too many scans for chat.scanner.patterns hang", ())
        try:
            return self._search(self._take_process(), text, patterns, deadline)
        finally:
            self._slots.release()

    def close(self) -> None:
        """End the idle processes; each also ends when this process ends, which closes its socket."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()

    def _search(
        self, process: "_PatternProcess", text: str, patterns: Sequence[str], deadline: float
    ) -> tuple[TextSpan, ...]:
        spans: list[TextSpan] = []
        invalid = []
        finished = False
        try:
            process.send_request(text, patterns, deadline)
            for number in range(1, len(patterns) + 1):
                matches = process.read_answer(deadline)
                spans += [TextSpan(*match) for match in matches or ()]
                if matches is None:
                    invalid.append(str(number))
            finished = True
        except (OSError, ValueError) as error:  # the process hangs, or was killed while it wrote its answer
            raise PatternsFailed("a pattern of chat.scanner.patterns took too long", tuple(spans)) from error
        finally:
            self._return_process(process) if finished else self._replace_process(process)
        if invalid:
            raise PatternsFailed(f"invalid expression: chat.scanner.patterns {', '.join(invalid)}", tuple(spans))
        return tuple(spans)

    def _take_process(self) -> "_PatternProcess":
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _start_process()

    def _return_process(self, process: "_PatternProcess") -> None:
        with self._lock:
            if len(self._idle) < WARM:
                self._idle.append(process)
                return
        process.kill()

    def _replace_process(self, process: "_PatternProcess") -> None:
        process.kill()
        with suppress(PatternsFailed):  # the next scan starts a process, or reports why none can start
            self._return_process(_start_process())


class _PatternProcess:
    """A child process that searches texts for patterns, and the socket to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            # The process has its own session, so that Ctrl-C reaches Maestro only; it ends when its socket is closed.
            self._process = subprocess.Popen(  # noqa: S603 - the program is Maestro's own
                (sys.executable, "-I", "-S", str(Path(pattern_program.__file__))),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        self._read = b""

    def send_request(self, text: str, patterns: Sequence[str], deadline: float) -> None:
        """Send a text and its patterns; raises OSError when the process does not read them in time."""
        seconds = max(deadline - time.monotonic(), 0.001)
        request = {"text": text, "patterns": list(patterns), "seconds": seconds}
        self._socket.settimeout(seconds)
        self._socket.sendall(json.dumps(request).encode("ascii") + b"\n")

    def read_answer(self, deadline: float) -> list[tuple[int, int]] | None:
        """Return the next pattern's matches, None if it is invalid; raises OSError at the deadline, or ValueError."""
        while b"\n" not in self._read:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            news = self._socket.recv(65_536)
            if not news:
                raise ConnectionResetError
            self._read += news
        line, _, self._read = self._read.partition(b"\n")
        answer: list[tuple[int, int]] | None = json.loads(line)
        return answer

    def kill(self) -> None:
        """Kill the process and wait until it has ended."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _start_process() -> _PatternProcess:
    try:
        return _PatternProcess()
    except OSError as error:
        raise PatternsFailed("no process that searches for chat.scanner.patterns could be started", ()) from error
