"""Posting to #maestro and reading it, with scanner and disk."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.figures import median, percentile
from benchmarks.measure.bench import Bench
from benchmarks.results import Figure, Section, figure
from maestro.bootstrap.tools import build_chat, build_scanner
from maestro.domain.agent_chat import HUMAN, chat_author
from maestro.domain.agents.agent import Agent
from maestro.settings import Settings
from maestro.settings.live import LiveSettings
from maestro.store.store import Store

POSTS = 1000
"""Posts of a round, one after the other."""
AGENTS = 100
CHARACTERS = 300
LONGEST = 4096
UNREAD = 20
"""New posts for each reading of an agent."""
SENTENCE = "the build is green again after we pinned a version in pyproject so try make test once more and tell me"


@dataclass
class UseTimes:
    """Milliseconds of each use: wall time and CPU time."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def note(self, use: Callable[[], object]) -> None:
        """Call a function and record its times."""
        began, spent = time.perf_counter(), time.process_time()
        use()
        self.wall.append((time.perf_counter() - began) * 1000)
        self.cpu.append((time.process_time() - spent) * 1000)

    def figures(self, what: str) -> tuple[Figure, ...]:
        """Return the figures of the times."""
        return (
            figure(f"{what}, p50", "ms", percentile(self.wall, 0.5)),
            figure(f"{what}, p99", "ms", percentile(self.wall, 0.99)),
            figure(f"{what}, CPU time", "ms", median(self.cpu)),
        )


async def chat(bench: Bench) -> Section:
    """Post and read in a new store."""
    took = await asyncio.to_thread(measure_uses, bench.folder / "chat", POSTS * bench.rounds)
    return Section(
        "chat",
        "The #maestro chat",
        f"{POSTS * bench.rounds:,} posts of {CHARACTERS} characters, one after the other, by {AGENTS} agents: each is "
        f"scanned for secrets by all built-in rules and committed to disk. After every {UNREAD} posts an agent reads "
        f"what is new, which is committed too. The longest: {LONGEST:,} characters.",
        tuple(one for name, times in took.items() for one in times.figures(name)),
    )


def measure_uses(folder: Path, posts: int) -> dict[str, UseTimes]:
    """Return the times of each kind of use."""
    folder.mkdir()
    words = random.Random(6)  # noqa: S311 - the same texts in every run
    with contextlib.closing(Store.open(folder / "maestro.db")) as store:
        slugs = [f"coder-{number}" for number in range(AGENTS)]
        with store.begin() as tx:
            for slug in slugs:
                tx.agents.save_agent(Agent(slug=slug, name=slug, role="coder", created_at=tx.now, updated_at=tx.now))
        live = LiveSettings.from_fixed(Settings())
        service = build_chat(live, store, build_scanner(lambda: None))
        assert service is not None
        service.add_post(HUMAN, "the first post loads the rules")
        took = {"posting": UseTimes(), f"reading {UNREAD} new posts": UseTimes(), "posting the longest": UseTimes()}
        posting, reading, longest = took.values()
        for number in range(posts):
            author, text = chat_author(slugs[number % AGENTS]), _text(words, CHARACTERS)
            posting.note(partial(service.add_post, author, text))
            if number % UNREAD == 0:
                reading.note(partial(_read, store))
                longest.note(partial(service.add_post, HUMAN, _text(words, LONGEST)))
    return took


def _read(store: Store) -> None:
    with store.view() as tx:
        unread = tx.chat.list_unread("coder-0")
    with store.begin() as tx:
        tx.chat.mark_read("coder-0", unread.new_pointer)


def _text(words: random.Random, length: int) -> str:
    return " ".join(words.choices(SENTENCE.split(), k=length // 3))[:length]
