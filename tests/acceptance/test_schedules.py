"""Heartbeats and crons on Temporal's schedules, in the whole system (docs/decisions.md: schedules; ADR 17)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.client import ScheduleDescription

from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.edits import AgentChange
from maestro.domain.schedules.edits import NewSchedule
from maestro.domain.schedules.schedule import Cron, Heartbeat, ScheduleColumns
from tests.support.instance import Instance, Row, running_instance

pytestmark = pytest.mark.asyncio(loop_scope="module")

AWAY = 25
YEARLY = "0 9 1 1 *"
QUICKLY = {"shortestIntervalSeconds": 1, "followSeconds": 0.05}
AGENTS = [{"slug": "ada"}, {"slug": "bob"}, {"slug": "boss", "role": "conductor"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    folder = tmp_path_factory.mktemp("schedules")
    async with running_instance(folder, agents=AGENTS, schedules=QUICKLY) as instance:
        yield instance


def plan(
    maestro: Instance, name: str, schedule: str, kind: type[ScheduleColumns] = Heartbeat, agent: str = "ada"
) -> str:
    """Plan something that has nothing to post, and return how it is called."""
    maestro.llm.script(f"Look at {name}.", reply="[SILENT]")
    new = NewSchedule(
        agent=agent, name=name, schedule=schedule, prompt=f"Look at {name}.", platform="web", channel=name
    )
    with maestro.operator() as operator, operator.store.begin() as tx:
        return tx.background.schedules.add_schedule(kind, new, "operator", timedelta(seconds=1)).ref


def change(maestro: Instance, ref: str, **values: object) -> None:
    """Change the row, as whoever edits schedules does."""
    with maestro.operator() as operator, operator.store.begin() as tx:
        planned = tx.background.schedules.get(ref)
        for name, value in values.items():
            setattr(planned, name, value)


def row(maestro: Instance, ref: str) -> Row:
    kind, number = ref.split("-")
    table = {"heartbeat": "heartbeat_configs", "cron": "cron_jobs"}[kind]
    return maestro.query(f"SELECT * FROM {table} WHERE id = ?", number)[0]


def jobs(maestro: Instance, ref: str) -> list[Row]:
    return maestro.query("SELECT * FROM queue WHERE schedule = ? ORDER BY slot", ref)


def slots(maestro: Instance, ref: str) -> list[datetime]:
    return [datetime.fromisoformat(job["slot"]) for job in jobs(maestro, ref)]


async def described(maestro: Instance, ref: str) -> ScheduleDescription:
    return await (await maestro.temporal()).get_schedule_handle(f"maestro-{ref}").describe()


async def fired(maestro: Instance, ref: str, times: int) -> None:
    """Return when so many of its jobs are over."""
    over = "SELECT 1 FROM queue WHERE schedule = ? AND status = 'completed' GROUP BY schedule HAVING count(*) >= ?"
    await maestro.until(over, ref, times)


async def agreed(maestro: Instance, ref: str, before: int) -> int:
    """Return how many times were skipped, as soon as Temporal and we say the same.

    We also count those ``before`` Temporal had been told of the schedule at all.
    """
    handle = (await maestro.temporal()).get_schedule_handle(f"maestro-{ref}")
    async with asyncio.timeout(30):
        while True:
            theirs = (await handle.describe()).info.num_actions_skipped_overlap
            if theirs == row(maestro, ref)["skipped"] - before:
                return theirs
            await asyncio.sleep(0.05)


@pytest.mark.xdist_group("schedules")
async def test_it_fires_on_its_grid_and_counts_what_it_skips(maestro: Instance) -> None:
    ref = plan(maestro, "slow", "every 1s")
    maestro.llm.script("Look at slow.", delay=4.0, reply="[SILENT]", times=1)
    await fired(maestro, ref, 4)
    found = slots(maestro, ref)
    anchor = datetime.fromisoformat(row(maestro, ref)["anchored_at"]).replace(microsecond=0)
    assert {(slot - anchor) % timedelta(seconds=1) for slot in found} == {timedelta(0)}
    assert len(set(found)) == len(found)
    assert found[1] - found[0] >= timedelta(seconds=4), "the flood guard: no run while one runs"
    assert [job["id"] for job in jobs(maestro, ref)] == [f"maestro-{ref}-{slot:%Y-%m-%dT%H:%M:%SZ}" for slot in found]
    assert await agreed(maestro, ref, before=(found[0] - anchor) // timedelta(seconds=1) - 1) >= 3
    change(maestro, ref, enabled=False)


@pytest.mark.xdist_group("schedules")
async def test_what_is_disabled_paused_or_deleted_fires_nothing(maestro: Instance) -> None:
    off, failing, asleep, gone, on = (
        plan(maestro, name, "every 1s", agent="bob" if name == "asleep" else "ada")
        for name in ("off", "failing", "asleep", "gone", "on")
    )
    change(maestro, off, enabled=False)
    change(maestro, failing, paused_reason="it failed 10 times in a row")
    with maestro.operator() as operator, operator.store.begin() as tx:
        bob = tx.agents.find_agent_by_slug("bob")
        assert bob is not None
        tx.agents.change(bob, AgentChange(status=AgentStatus.PAUSED), "operator")
        tx.background.schedules.remove_schedule(tx.background.schedules.get(gone), "operator")
    await fired(maestro, on, 1)
    before = {ref: len(jobs(maestro, ref)) for ref in (off, failing, asleep, gone)}
    await fired(maestro, on, 5)
    assert {ref: len(jobs(maestro, ref)) for ref in before} == before
    for ref in (off, failing, asleep):
        assert (await described(maestro, ref)).schedule.state.paused
    listed = {entry.id async for entry in await (await maestro.temporal()).list_schedules()}
    assert f"maestro-{gone}" not in listed
    change(maestro, on, enabled=False)


@pytest.mark.xdist_group("schedules")
async def test_what_is_planned_once_runs_once(maestro: Instance) -> None:
    ref = plan(maestro, "once", "in 2s", Cron)
    other = plan(maestro, "other", "every 1s")
    await fired(maestro, ref, 1)
    assert row(maestro, ref)["ended_at"]
    await fired(maestro, other, 4)
    assert len(jobs(maestro, ref)) == 1
    assert (await described(maestro, ref)).schedule.state.note == "the schedule has ended"
    change(maestro, other, enabled=False)


@contextlib.asynccontextmanager
async def its_own(tmp_path: Path) -> AsyncIterator[Instance]:
    async with running_instance(tmp_path, agents=AGENTS, schedules=QUICKLY) as instance:
        yield instance


@pytest.mark.xdist_group("schedules-restarts")
async def test_ten_restarts_in_a_minute_cause_no_extra_run(tmp_path: Path) -> None:
    async with its_own(tmp_path) as maestro:
        ref, yearly = plan(maestro, "often", "every 2s"), plan(maestro, "rarely", YEARLY, Cron)
        await fired(maestro, ref, 1)
        for _ in range(10):
            await maestro.restart()
        await fired(maestro, ref, 3)
        found = slots(maestro, ref)
        assert jobs(maestro, yearly) == []
        assert len(set(found)) == len(found)
        assert {(slot - found[0]) % timedelta(seconds=2) for slot in found} == {timedelta(0)}
        assert row(maestro, ref)["runs"] == len(found)


@pytest.mark.xdist_group("schedules-downtime")
async def test_after_downtime_there_is_one_catch_up_and_then_the_old_grid(tmp_path: Path) -> None:
    """25 seconds away on a grid of ten; the start after that comes with other settings, so everything is told anew."""
    async with its_own(tmp_path) as maestro:
        ref = plan(maestro, "steady", "every 10s")
        await fired(maestro, ref, 1)
        # The job ends before its workflow does, and Temporal skips each time at which a workflow is still open. So the
        # stop comes after the workflow, and well before the next time.
        client = await maestro.temporal()
        while True:
            await client.get_workflow_handle(jobs(maestro, ref)[-1]["id"]).result()
            if datetime.now(UTC) - slots(maestro, ref)[-1] < timedelta(seconds=5):
                break
            await fired(maestro, ref, len(jobs(maestro, ref)) + 1)
        await maestro.stop()
        before = slots(maestro, ref)
        await asyncio.sleep(AWAY)
        back = datetime.now(UTC)
        await maestro.restart(jobs={"maxToolRounds": 4})
        await fired(maestro, ref, len(before) + 2)
        found = slots(maestro, ref)
        [caught_up] = [slot for slot in found if before[-1] < slot <= back]
        assert caught_up == before[-1] + timedelta(seconds=10)
        assert {(slot - found[0]) % timedelta(seconds=10) for slot in found} == {timedelta(0)}
        passed = (found[-1] - found[0]) // timedelta(seconds=10) + 1
        assert row(maestro, ref)["skipped"] == passed - len(found), "the times that nobody made up for are counted"
