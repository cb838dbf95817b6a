"""The scanner that Maestro ships: its own rules as plugins of detect-secrets, and processes for operators' patterns."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import BoundedSemaphore, Lock

import structlog

from maestro.domain.redaction import REDACTED, AllowList, ScanResult, ScanRules, SecretScanner, TextSpan, merge_spans
from maestro.scanner import pattern_program
from maestro.scanner.assignments import AssignmentPlugin, TablePlugin
from maestro.scanner.credentials import AddressPlugin, HeaderPlugin
from maestro.scanner.plugin import BLANKED, ByteRange, SpanPlugin, TextFolder
from maestro.scanner.tokens import BlockPlugin, FormPlugin, TokenPlugin, token_table

MOST_PROCESSES = 8
"""The most child processes: this many scans may hang before a further scan has to wait."""
IDLE_PROCESSES = 2
"""The most idle child processes that stay alive for further scans."""

WINDOW = 16_384
"""Characters scanned at a time, so that rules that rescan their input stay fast in a long text."""
OVERLAP = 4_096
"""Characters that two successive windows have in common; a longer secret is found by its beginning."""
_ROUNDS = 2
ALLOW_NOTHING = AllowList()

log = structlog.get_logger(__name__)

_MARK = re.compile(REDACTED.replace("[", r"\["))


class ScanIncomplete(Exception):
    """A scan reached its deadline, or the search for some patterns failed; ``spans`` are the findings so far."""

    def __init__(self, reason: str, spans: tuple[TextSpan, ...]) -> None:
        """Set the reason, which quotes neither the pattern nor the text."""
        super().__init__(reason)
        self.spans = spans


class PatternProcesses:
    """Searches texts for operators' patterns in child processes, which start on demand; safe for many threads."""

    def __init__(self) -> None:
        """Start no process yet, because most operators have no patterns of their own."""
        self._slots = BoundedSemaphore(MOST_PROCESSES)
        self._lock = Lock()
        self._idle: list[_PatternProcess] = []

    def find_spans(self, text: str, patterns: Sequence[str], deadline: float) -> tuple[TextSpan, ...]:
        """Return the ranges that the patterns match; raises ScanIncomplete at the deadline of the monotonic clock."""
        if not self._slots.acquire(timeout=max(deadline - time.monotonic(), 0)):
            raise ScanIncomplete("too many scans for chat.scanner.patterns hang", ())
        try:
            return self._search_text(self._take_process(), text, patterns, deadline)
        finally:
            self._slots.release()

    def end_processes(self) -> None:
        """End the idle child processes; without this call, they end when this process ends."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill_process()

    def _search_text(
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
        except (OSError, ValueError) as error:  # The pattern process hangs, or was killed while it wrote its answer.
            raise ScanIncomplete("a pattern of chat.scanner.patterns took too long", tuple(spans)) from error
        finally:
            self._return_process(process) if finished else self._replace_process(process)
        if invalid:
            raise ScanIncomplete(f"invalid expression: chat.scanner.patterns {', '.join(invalid)}", tuple(spans))
        return tuple(spans)

    def _take_process(self) -> "_PatternProcess":
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _start_process()

    def _return_process(self, process: "_PatternProcess") -> None:
        with self._lock:
            if len(self._idle) < IDLE_PROCESSES:
                self._idle.append(process)
                return
        process.kill_process()

    def _replace_process(self, process: "_PatternProcess") -> None:
        process.kill_process()
        with suppress(ScanIncomplete):  # the next scan starts a process, or reports why none can start
            self._return_process(_start_process())


class _PatternProcess:
    """A child process that searches texts for patterns, and the socket to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            # The process has its own session, so that Ctrl-C reaches Maestro only; it ends when its socket is closed.
            self._process = subprocess.Popen(  # noqa: S603 - the program is part of Maestro
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
        """Return the next pattern's matches, None if it is invalid; raises OSError or ValueError if no answer comes."""
        while b"\n" not in self._read:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            news = self._socket.recv(65_536)
            if not news:
                raise ConnectionResetError
            self._read += news
        line, _, self._read = self._read.partition(b"\n")
        answer: list[tuple[int, int]] | None = json.loads(line)
        return answer

    def kill_process(self) -> None:
        """Kill the process and wait until it has ended."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _start_process() -> _PatternProcess:
    try:
        return _PatternProcess()
    except OSError as error:
        raise ScanIncomplete("no process that searches for chat.scanner.patterns could be started", ()) from error


class ShippedRules:
    """All rules of the scanner; stateless, so they are built once and used by any number of threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Compile the patterns of all rules, which takes some milliseconds."""
        self._clock = clock
        self._folder = TextFolder()
        self.plugins: tuple[SpanPlugin, ...] = (
            TokenPlugin(token_table()),
            FormPlugin(),
            BlockPlugin(),
            AddressPlugin(),
            HeaderPlugin(),
            AssignmentPlugin(),
            TablePlugin(),
        )

    def find_spans(self, text: str, deadline: float, allow: AllowList = ALLOW_NOTHING) -> tuple[TextSpan, ...]:
        """Return the ranges of secrets outside the allow-list; raises ScanIncomplete at the deadline."""
        spans: list[TextSpan] = []
        for offset in range(0, max(len(text) - OVERLAP, 1), WINDOW - OVERLAP):
            for reading in self._folder.list_folded_forms(text[offset : offset + WINDOW]):
                for start, end in self._find_ranges(reading.data, deadline, spans):
                    span = reading.original_range(start, end)
                    span = TextSpan(span.start + offset, span.end + offset)
                    if not allow.allows_finding(text, span):
                        spans.append(span)
        return merge_spans(spans)

    def _find_ranges(self, data: bytes, deadline: float, before: list[TextSpan]) -> Iterator[ByteRange]:
        """Yield the findings; then blank them and scan again, so that a scan of the redacted text finds nothing new."""
        for _ in range(_ROUNDS):
            ranges: list[ByteRange] = []
            for plugin in self.plugins:
                if self._clock() > deadline:
                    raise ScanIncomplete("the scan of the text took too long", merge_spans(before))
                ranges += [(start, end) for start, end in plugin.find_ranges(data) if start < end]
            if not ranges:
                return
            yield from ranges
            blanked = bytearray(data)
            for start, end in ranges:
                blanked[start:end] = BLANKED * (end - start)
            data = bytes(blanked)


@cache
def shipped_rules() -> ShippedRules:
    """Return the scanner's own rules, which are built once per process."""
    return ShippedRules()


class DetectSecretsScanner:
    """Finds secrets: its rules run in the calling thread, the operator's patterns in other processes.

    The scanner has no global settings and ignores comments in a text that ask not to be scanned. Findings made before
    an error are returned with the error, so a pattern that hangs does not switch the rules off.
    """

    def __init__(self) -> None:
        """Build the rules; the processes start only when there are patterns."""
        self._rules = shipped_rules()
        self._children = PatternProcesses()

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        """Return the findings made within the timeout ``rules.timeout_ms``."""
        deadline = time.monotonic() + rules.timeout_ms / 1000
        try:
            spans = self._rules.find_spans(text, deadline, rules.allow)
        except ScanIncomplete as error:
            return ScanResult(text, error.spans, str(error))
        if not rules.patterns:
            return ScanResult(text, spans)
        problem = ""
        try:
            matched = self._children.find_spans(text, rules.patterns, deadline)
        except ScanIncomplete as error:
            matched, problem = error.spans, str(error)
        matched = tuple(span for span in matched if not rules.allow.allows_finding(text, span))
        return ScanResult(text, merge_spans((*spans, *drop_findings_in_marks(text, matched))), problem)

    def end_processes(self) -> None:
        """End the child processes at once; without this call, they end when this process ends."""
        self._children.end_processes()


class GuardedScanner:
    """A scanner that never raises: an error is logged and counted, and the fail mode decides about the text."""

    def __init__(self, scanner: SecretScanner, failed: Callable[[], None] = lambda: None) -> None:
        """Wrap a scanner; ``failed`` is called, from any thread, for each text that was not scanned completely."""
        self._scanner = scanner
        self._failed = failed

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        """Return the findings, none where scanning is switched off; never raises."""
        if not rules.enabled or not text:
            return ScanResult(text)
        try:
            result = self._scanner.scan(text, rules)
        except Exception as error:  # noqa: BLE001 - a failed scan stops no post (docs/decisions.md: agent chat)
            result = ScanResult(text, (), type(error).__name__)
        if not result.error:
            return result
        # Operators search the log for scannerError. The scanned text is left out, because it may hold secrets.
        log.error("scanner.failed", scannerError=True, problem=result.error, fail_mode=rules.fail_mode)
        self._failed()
        return result if rules.fail_mode == "open" else ScanResult(text, (TextSpan(0, len(text)),), result.error)


def drop_findings_in_marks(text: str, spans: tuple[TextSpan, ...]) -> Iterator[TextSpan]:
    """Yield the parts of the spans that are outside of existing redaction marks."""
    marks = [match.span() for match in _MARK.finditer(text)]
    for span in spans:
        at = span.start
        for start, end in marks:
            if start < span.end and end > at:
                if at < start:
                    yield TextSpan(at, start)
                at = end
        if at < span.end:
            yield TextSpan(at, span.end)
