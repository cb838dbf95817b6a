"""The CPU time of a search for secrets, by kind of text."""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.figures import percentile
from benchmarks.measure.bench import Bench
from benchmarks.results import Figure, Section, at_most, figure
from maestro.domain.redaction import ScanRules
from maestro.scanner.scanner import DetectSecretsScanner
from tests.support import platform_texts

CHARS = 4096
SCANS = 60
STAFF = r"EMP-\d{6}"
ROOT = Path(__file__).parent.parent.parent
MS = 1000.0


async def scanner(bench: Bench) -> Section:
    """Measure in this process, which does nothing else meanwhile, on a thread of its own."""
    return await asyncio.to_thread(_measure, bench.rounds)


def _measure(rounds: int) -> Section:
    made = DetectSecretsScanner()
    try:
        figures = [one for name, texts in _texts().items() for one in _figures(made, name, texts, rounds)]
        figures.append(_with_pattern(made, rounds))
    finally:
        made.end_processes()
    return Section(
        "scanner",
        "The search for secrets",
        f"CPU time of one scan of {CHARS} characters in one thread, {SCANS} scans a round; the last figure is wall "
        "time, because another process does part of the work.",
        tuple(figures),
    )


def _figures(made: DetectSecretsScanner, name: str, texts: Sequence[str], rounds: int) -> Iterator[Figure]:
    took = [[_cpu_ms(made, text) for text in texts] for _ in range(rounds)]
    target = at_most(2) if "prose" in name else None
    yield figure(f"{name}, p50", "ms", [percentile(one, 0.5) for one in took], target)
    yield figure(f"{name}, p99", "ms", [percentile(one, 0.99) for one in took], at_most(50))


def _cpu_ms(made: DetectSecretsScanner, text: str) -> float:
    started = time.thread_time()
    made.scan(text, ScanRules(timeout_ms=60_000))
    return (time.thread_time() - started) * MS


def _with_pattern(made: DetectSecretsScanner, rounds: int) -> Figure:
    """Return the time of a short text with a pattern of the operator's, which another process searches for."""
    rules = ScanRules(timeout_ms=60_000, patterns=(STAFF,))
    made.scan("warm", rules)
    took = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(SCANS):
            made.scan("EMP-123456 posted this", rules)
        took.append((time.perf_counter() - started) / SCANS * MS)
    return figure("a short text with a pattern of one's own", "ms", took)


def _texts() -> dict[str, list[str]]:
    rng = random.Random(1)  # noqa: S311 - the same texts each time
    chat = " ".join(platform_texts.prose(rng) for _ in range(5_000))
    prose = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("**/*.md")))
    code = "".join(path.read_text() for path in sorted((ROOT / "maestro").glob("**/*.py")))
    settings = "".join(f"SETTING_{number}={rng.randint(0, 10**6)}\n" for number in range(10_000))
    keys = "".join(f"API_TOKEN_{number}={rng.getrandbits(128):032x}\n" for number in range(10_000))
    cyrillic = "Мы обновили сервер, и теперь всё работает быстрее, чем вчера. " * 200
    hostile = "password token secret key " * 400
    sources = {
        "prose": prose,
        "prose about secrets": chat,
        "code": code,
        ".env": settings,
        ".env of keys": keys,
        "Cyrillic": cyrillic,
        "hostile": hostile,
    }
    return {name: [_part(rng, text) for _ in range(SCANS)] for name, text in sources.items()}


def _part(rng: random.Random, text: str) -> str:
    start = rng.randrange(max(len(text) - CHARS, 1))
    return text[start : start + CHARS]
