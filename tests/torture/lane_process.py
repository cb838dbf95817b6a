"""A process with a Maestro of its own: it is given numbers of episodes, and says what each has come to."""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TextIO

from benchmarks.processes import end_on_sigterm
from tests.torture.episode import Outcome, Stage
from tests.torture.plan import Plan, plan_episode

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
    kept: Path
    """Where the data of episodes with a fault goes."""
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _stage: Stage | None = None
    _numbers: "count[int]" = field(default_factory=lambda: count(SHORTER))

    async def play(self, number: int, kills: int) -> Outcome:
        """Play the episode of this number; when it has a fault, find the shortest beginning that has one too."""
        stage = await self._open()
        plan = plan_episode(self.seed, number, kills, stage.layout.menu)
        outcome = await stage.play(plan)
        if outcome.faults:
            stage.layout.keep = self.kept / f"episode-{number}"
            outcome.kept = str(stage.layout.keep)
            await self.close()
            shortest = await self._shorten(plan)
            lanes = ", ".join(shortest.lanes)
            outcome.prefix = [*map(str, shortest.disturbances), f"with messages in {lanes}"]
        return outcome

    async def close(self) -> None:
        """End the stage."""
        await self._stack.aclose()
        self._stage = None

    async def _open(self) -> Stage:
        if self._stage is None:
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            self._stage = await self._stack.enter_async_context(Stage.running(self.layout, folder))
            await self._stage.learn_points()
        return self._stage

    async def _shorten(self, plan: Plan) -> Plan:
        """Return the shortest beginning with the fewest lanes that fails; the whole where it does not fail again."""
        for length in range(len(plan.disturbances) + 1):
            shortest = plan.first(length)
            if await self._fails(shortest):
                break
        else:
            return plan
        for lane in plan.lanes:
            fewer = shortest.without(lane)
            if fewer.messages and await self._fails(fewer):
                shortest = fewer
        return shortest

    async def _fails(self, plan: Plan) -> bool:
        for _ in range(MOST_TRIES):
            stage = await self._open()
            if (await stage.play(plan.renamed(next(self._numbers)))).faults:
                await self.close()
                return True
        return False


async def serve(layout: str, seed: int, kept: Path, answers: TextIO) -> None:
    """Play every episode whose number and kills are on a line of the standard input, until it ends."""
    end_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="maestro-torture-", ignore_cleanup_errors=True) as folder:
        player = Player(layout, seed, Path(folder), kept)
        try:
            async for line in _lines():
                number, kills = map(int, line.split())
                print(json.dumps((await player.play(number, kills)).told()), file=answers, flush=True)
        finally:
            await player.close()


async def _lines() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line
