"""Many episodes, in several processes at once; their outcomes are one run, which goes on where it was cut off."""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import this_machine
from benchmarks.processes import end_on_sigterm
from tests.torture.ledger import ALLOWED, FIGURES
from tests.torture.plan import DEADLY
from tests.torture.proof import JSON, PAGE, README, ROOT

KILLS_OF_AN_EPISODE = 10
LONGEST = 2**24
"""The most bytes of a line that tells of an episode."""

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Order:
    """What is asked for on the command line."""

    kills: int
    seed: int
    store: str
    layout: str
    lanes: int
    folder: Path
    """Where its file is, and beside it, in a folder of its name, the data of episodes with a fault."""

    @property
    def path(self) -> Path:
        """The file of its run: a line for each episode, and one for each time that the command was given."""
        return self.folder / f"{self.layout}-{self.store}-seed-{self.seed}-kills-{self.kills}.jsonl"

    @property
    def points(self) -> Path:
        """The file of its crash points, which the first process learns and the others read."""
        return self.path.with_suffix(".points.json")

    def episodes(self) -> Iterator[tuple[int, int]]:
        """Yield the number of each episode, and its kills."""
        for number, done in enumerate(range(0, self.kills, KILLS_OF_AN_EPISODE), 1):
            yield number, min(KILLS_OF_AN_EPISODE, self.kills - done)


@dataclass
class Run:
    """What an order has come to."""

    order: Order
    pieces: list[JsonObject] = field(default_factory=list)
    """What was done by one command each: commit, machine, kills and seconds."""
    outcomes: list[JsonObject] = field(default_factory=list)
    """The outcome of each episode, with the commit that it is of."""

    @classmethod
    def read(cls, order: Order) -> "Run":
        """Return the run as far as its file has it; a line that was cut off does not count."""
        run = cls(order)
        lines = order.path.read_text(encoding="utf-8").splitlines() if order.path.exists() else []
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            run._apply_line(**entry)
        return run

    @property
    def open_episodes(self) -> list[tuple[int, int]]:
        """The number and the kills of each episode that has not been played."""
        played = {outcome["number"] for outcome in self.outcomes}
        return [(number, kills) for number, kills in self.order.episodes() if number not in played]

    @property
    def kills(self) -> int:
        """How many processes were killed so far."""
        return self._kills_by_commit().total()

    @property
    def messages(self) -> int:
        """How many messages were sent so far."""
        return self._sum("messages").total()

    @property
    def faults(self) -> list[JsonObject]:
        """The episodes with a fault."""
        return [one for one in self.outcomes if one["faults"]]

    def begin(self) -> None:
        """Begin one more piece; a run that is complete begins anew."""
        if not self.open_episodes:
            self.pieces, self.outcomes = [], []
            self.order.path.unlink()
            self.order.points.unlink(missing_ok=True)
        if self.order.path.exists() and not self.order.path.read_bytes().endswith(b"\n"):
            self._append("\n")  # the last line was cut off
        self._write(piece={"commit": commit(), "machine": asdict(this_machine()), "lanes": self.order.lanes})

    def add(self, outcome: JsonObject, seconds: float) -> None:
        """Add an episode, so many seconds after the beginning of the piece."""
        self._write(outcome=outcome, seconds=round(seconds))

    def as_json(self) -> JsonObject:
        """Return it as JSON."""
        figures = self._sum("figures")
        return {
            "store": self.order.store,
            "layout": self.order.layout,
            "seed": self.order.seed,
            "ordered": self.order.kills,
            "kills": self.kills,
            "episodes": len(self.outcomes),
            "commits": dict(self._kills_by_commit()),
            "seconds": sum(piece["seconds"] for piece in self.pieces),
            "machine": self.pieces[-1]["machine"] if self.pieces else {},
            "messages": dict(sorted(self._sum("messages").items())),
            "disturbances": dict(sorted(self._sum("harms").items())),
            "points": {
                "reached": len({point for one in self.outcomes for point in one["points"]}),
                "known": max((one["known_points"] for one in self.outcomes), default=0),
            },
            "figures": {name: figures[name] for name in FIGURES},
            "allowed": {name: figures[name] for name in ALLOWED},
            "skipped": {name: why for one in self.outcomes for name, why in one["skipped"].items()},
        }

    def _write(self, **entry: Any) -> None:
        line = json.dumps(entry)
        self._append(f"{line}\n")
        self._apply_line(**json.loads(line))

    def _append(self, text: str) -> None:
        self.order.folder.mkdir(parents=True, exist_ok=True)
        with self.order.path.open("a", encoding="utf-8") as file:
            file.write(text)

    def _apply_line(self, piece: JsonObject | None = None, outcome: JsonObject | None = None, seconds: int = 0) -> None:
        if piece is not None:
            self.pieces.append({**piece, "seconds": 0})
        if outcome is not None:
            self.outcomes.append({**outcome, "commit": self.pieces[-1]["commit"]})
            self.pieces[-1]["seconds"] = seconds

    def _kills_by_commit(self) -> Counter[str]:
        kills = Counter[str]()
        for one in self.outcomes:
            kills[one["commit"]] += sum(one["harms"].get(harm, 0) for harm in DEADLY)
        return +kills

    def _sum(self, name: str) -> Counter[str]:
        return sum((Counter(one[name]) for one in self.outcomes), Counter[str]())


async def play(run: Run, tell: Callable[[Run], None], seconds: float) -> None:
    """Play the episodes that are left, none begun after so many seconds; ``tell`` is called after each."""
    end_on_sigterm()
    waiting, began = deque(run.open_episodes), time.monotonic()

    def next_episode() -> tuple[int, int] | None:
        return waiting.popleft() if waiting and time.monotonic() < began + seconds else None

    def add(outcome: JsonObject) -> None:
        run.add(outcome, time.monotonic() - began)
        tell(run)

    async with asyncio.TaskGroup() as lanes:
        for _ in range(min(run.order.lanes, len(waiting))):
            lanes.create_task(_play_lane(run.order, next_episode, add))


async def _play_lane(
    order: Order, next_episode: Callable[[], tuple[int, int] | None], add: Callable[[JsonObject], None]
) -> None:
    command = (sys.executable, "-m", "tests.torture", "--serve", "--seed", str(order.seed), "--layout", order.layout)
    process = await asyncio.create_subprocess_exec(
        *(*command, "--store", order.store, "--folder", str(order.path.with_suffix("")), "--points", str(order.points)),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=LONGEST,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        while (episode := next_episode()) is not None:
            number, kills = episode
            process.stdin.write(f"{number} {kills}\n".encode())
            line = await process.stdout.readline()
            if not line:
                raise RuntimeError(f"the process that played episode {number} ended")
            add(json.loads(line))
    except asyncio.CancelledError:
        process.terminate()
        raise
    finally:
        process.stdin.close()
        await process.wait()


def commit() -> str:
    """Return the commit of the sources, marked where they differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", *(f":!{path.relative_to(ROOT)}" for path in (JSON, PAGE, README)))
    return git("rev-parse", "--short=12", "HEAD") + (" and changes" if changed else "")
