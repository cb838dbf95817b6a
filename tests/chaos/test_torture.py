"""Forty kills of ``make torture``, by seed: nothing is lost, doubled, out of order or paid twice."""

from pathlib import Path

import pytest

from tests.torture.campaign import KILLS_OF_AN_EPISODE
from tests.torture.episode import Stage
from tests.torture.plan import plan_episode

KILLS = 40
SEED = 1
EPISODES = 2
"""Those of one test, which has a Maestro of its own: the tests run side by side."""


@pytest.mark.parametrize(
    "first", range(1, 1 + KILLS // KILLS_OF_AN_EPISODE, EPISODES), ids=lambda number: f"seed-{SEED}-episode-{number}"
)
async def test_episodes_leave_no_fault(tmp_path: Path, first: int) -> None:
    async with Stage.running("one", tmp_path) as stage:
        await stage.learn_points()
        assert stage.layout.menu.points
        for number in range(first, first + EPISODES):
            outcome = await stage.play(plan_episode(SEED, number, KILLS_OF_AN_EPISODE, stage.layout.menu))
            assert outcome.faults == [], outcome.plan
            assert outcome.kills == KILLS_OF_AN_EPISODE
