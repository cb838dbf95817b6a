"""A process with a Maestro of its own: it is given numbers of episodes, and says what each has come to."""

import asyncio
import fcntl
import json
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import TextIO

from benchmarks.processes import end_on_sigterm
from tests.torture.episode import Outcome, Stage
from tests.torture.ledger import ENDED, FIGURES, UNFINISHED
from tests.torture.plan import Plan, Point, plan_episode

MOST_TRIES = 2
"""How often a shorter episode is tried: what depends on the moment does not fail each time."""
SHORTER = 1_000_000
"""Shorter forms of an episode have numbers from here on, because the ids of their messages must be new."""


@dataclass
class Player:
    """Plays episodes on a stage, and replaces the stage when an episode had a fault."""

    layout: str
    seed: int
    folder: Path
    fault_folder: Path
    """Where the data of episodes with a fault goes."""
    points: Path
    """The file of the crash points of the run."""
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _stage: Stage | None = None
    _numbers: "count[int]" = field(default_factory=lambda: count(SHORTER))

    async def play(self, number: int, kills: int) -> Outcome:
        """Play the episode of this number; when it has a fault, find the shortest beginning that has one too."""
        stage = await self._open()
        plan = plan_episode(self.seed, number, kills, stage.layout.menu)
        outcome = await play_to_the_end(stage, plan)
        if outcome.faults:
            stage.layout.copy_target = self.fault_folder / f"episode-{number}"
            outcome.data_folder = str(stage.layout.copy_target)
            await self.close()
            shortest = await self._shorten(plan, outcome)
            if shortest is not None:
                outcome.prefix = [*map(str, shortest.disturbances), f"with messages in {', '.join(shortest.lanes)}"]
        return outcome

    async def close(self) -> None:
        """End the stage."""
        await self._stack.aclose()
        self._stage = None

    async def _open(self) -> Stage:
        if self._stage is None:
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            self._stage = await self._stack.enter_async_context(Stage.running(self.layout, folder))
            await self._share_points(self._stage)
        return self._stage

    async def _share_points(self, stage: Stage) -> None:
        """Offer the points of the run, which the first process learns, so that the seed alone decides an episode."""
        self.points.parent.mkdir(parents=True, exist_ok=True)
        with self.points.open("a+", encoding="utf-8") as file:
            await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
            file.seek(0)
            if text := file.read():
                stage.offer_points([Point(**one) for one in json.loads(text)])
                return
            await stage.learn_points()
            file.write(json.dumps([asdict(point) for point in stage.layout.menu.points]))

    async def _shorten(self, plan: Plan, outcome: Outcome) -> Plan | None:
        """Return the shortest beginning with the fewest lanes that has such a fault too, None if none has.

        After a process has ended, messages are lost only because nothing sends them any more.
        """
        figures = {ENDED} if outcome.figures[ENDED] else {figure for figure in FIGURES if outcome.figures[figure]}
        for length in range(len(plan.disturbances) + 1):
            shortest = plan.first(length)
            if await self._fails(shortest, figures):
                break
        else:
            return None
        for lane in plan.lanes:
            fewer = shortest.without(lane)
            if fewer.messages and await self._fails(fewer, figures):
                shortest = fewer
        return shortest

    async def _fails(self, plan: Plan, figures: Collection[str]) -> bool:
        for _ in range(MOST_TRIES):
            outcome = await play_to_the_end(await self._open(), plan.renamed(next(self._numbers)))
            if outcome.faults:
                await self.close()
            if any(outcome.figures[figure] for figure in figures):
                return True
        return False


async def play_to_the_end(stage: Stage, plan: Plan) -> Outcome:
    """Play an episode; one that ends with an error has a fault."""
    try:
        return await stage.play(plan)
    # What it is caused by, a process of Maestro or the test itself, is to be seen by a person.
    except Exception:  # noqa: BLE001 - see above
        fault = f"e{plan.number} {UNFINISHED}: {traceback.format_exc()}"
        return Outcome(plan.number, figures=Counter({UNFINISHED: 1}), faults=[fault], plan=plan.to_json())


async def serve(layout: str, seed: int, fault_folder: Path, points: Path, answers: TextIO) -> None:
    """Play every episode whose number and kills are on a line of the standard input, until it ends."""
    end_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="maestro-torture-", ignore_cleanup_errors=True) as folder:
        player = Player(layout, seed, Path(folder), fault_folder, points)
        try:
            async for line in _lines():
                number, kills = map(int, line.split())
                print(json.dumps((await player.play(number, kills)).as_json()), file=answers, flush=True)
        finally:
            await player.close()


async def _lines() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line
