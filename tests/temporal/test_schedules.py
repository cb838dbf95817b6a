"""Temporal's schedules follow the rows of heartbeats and crons, on a real server.

See docs/decisions.md: schedules; ADR 17.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, takewhile
from pathlib import Path
from unittest.mock import Mock
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio
from temporalio.api.workflowservice.v1 import ListScheduleMatchingTimesRequest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.agents.agent import AgentStatus
from maestro.domain.agents.edits import AgentChange, NewAgent
from maestro.domain.errors import StoreBusy
from maestro.domain.jobs.job import JobRef, JobStatus
from maestro.domain.schedules import expressions as domain
from maestro.domain.schedules.edits import NewSchedule
from maestro.domain.schedules.expressions import clocks_change, read_schedule, read_stored_schedule
from maestro.domain.schedules.schedule import Cron, Heartbeat, ScheduleColumns
from maestro.domain.schedules.times import times_after
from maestro.domain.settings.jobs import ScheduleSettings
from maestro.store.background.schedules import ScheduleRuns
from maestro.store.store import Store
from temporal import schedules as schedules_module
from temporal.client import connect
from temporal.dispatcher import Queues, RunSettings
from temporal.endpoint import Endpoint
from temporal.schedule_keeper import ScheduleKeeper
from temporal.schedules import schedule_spec
from tests.support.fresh_store import fresh_store
from tests.support.temporal_gate import NO_WORKERS, key_gate, plain_gate, port_of, temporal_server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("schedules")]

DEFAULTS = JobRef(job_id="", run=1, heartbeat_seconds=3, model_seconds=60, tool_seconds=60, tool_rounds=5, grouped=True)
PACE = RunSettings(Queues(""), look=0.2, background=50, defaults=DEFAULTS)
KEY = "the-right-key"
DAILY = "0 9 * * *"
AMSTERDAM = "Europe/Amsterdam"
NOW = datetime(2026, 11, 22, 6, 30, tzinfo=UTC)


@dataclass
class Place:
    """A store, the server, and a queue of our own, so that no test meets another's schedules."""

    store: Store
    client: Client
    queue: str

    def plan(self, schedule: str = DAILY, kind: type[ScheduleColumns] = Cron, zone: str = "UTC") -> str:
        """Plan something and return how it is called."""
        new = NewSchedule(
            agent="ada", schedule=schedule, timezone=zone, prompt=f"Do {schedule}.", platform="web", channel="c"
        )
        with self.store.begin() as tx:
            return tx.background.schedules.add_schedule(kind, new, "operator").ref

    def change(self, ref: str, **values: object) -> None:
        """Change the row, as whoever edits schedules does."""
        with self.store.begin() as tx:
            row = tx.background.schedules.get(ref)
            for name, value in values.items():
                setattr(row, name, value)

    def row(self, ref: str) -> ScheduleColumns:
        with self.store.view() as tx:
            return tx.background.schedules.get(ref)

    def delete(self, ref: str) -> None:
        with self.store.begin() as tx:
            tx.background.schedules.remove_schedule(tx.background.schedules.get(ref), "operator")

    def keeper(self, pace: RunSettings = PACE) -> ScheduleKeeper:
        return ScheduleKeeper(
            self.store,
            lambda: replace(pace, queues=Queues(self.queue)),
            lambda: ScheduleSettings(follow_seconds=0.01, compare_minutes=60),
        )

    def handle(self, ref: str) -> ScheduleHandle:
        return self.client.get_schedule_handle(f"{self.queue}-{ref}")

    async def there(self, ref: str) -> bool:
        """Say whether Temporal has it."""
        try:
            await self.handle(ref).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return True


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    """Run a real Temporal server and return its port."""
    async with temporal_server(tmp_path_factory.mktemp("temporal")) as running:
        yield port_of(running)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(server: int) -> Client:
    return await connect(Endpoint(f"127.0.0.1:{server}", "default"))


@pytest.fixture
def place(tmp_path: Path, client: Client, request: pytest.FixtureRequest) -> Iterator[Place]:
    store = fresh_store(tmp_path / "maestro.db")
    with store.begin() as tx:
        tx.agents.create(NewAgent(slug="ada"), "operator")
    yield Place(store, client, f"queue-{zlib.crc32(request.node.name.encode()):x}")
    store.close()


async def test_it_is_created_as_it_is_written(place: Place) -> None:
    ref = place.plan("*/15 9-17 * * 1-5", zone=AMSTERDAM)
    assert await place.keeper().update_schedules(place.client)
    described = await place.handle(ref).describe()
    action = described.schedule.action
    assert isinstance(action, ScheduleActionStartWorkflow)
    assert (action.workflow, action.task_queue, action.id) == ("ScheduledWorkflow", place.queue, f"{place.queue}-{ref}")
    assert described.schedule.policy.overlap is ScheduleOverlapPolicy.SKIP
    assert described.schedule.policy.catchup_window == timedelta(days=366)
    assert described.schedule.spec.time_zone_name == AMSTERDAM
    assert not described.schedule.state.paused
    ours = times_after(
        read_stored_schedule("*/15 9-17 * * 1-5", AMSTERDAM, NOW), ZoneInfo(AMSTERDAM), NOW, datetime.now(UTC)
    )
    assert described.info.next_action_times[:3] == list(islice(ours, 3))
    assert place.row(ref).followed
    assert place.row(ref).follow_error == ""
    await place.keeper().update_schedules(place.client)
    assert (await place.handle(ref).describe()).info.last_updated_at is None, "compared, and left alone"


async def test_whatever_is_done_to_the_row_is_followed(place: Place) -> None:
    ref, beat = place.plan(), place.plan("every 1h", Heartbeat)
    keeper = place.keeper()
    await keeper.update_schedules(place.client)
    place.change(ref, enabled=False)
    place.change(beat, paused_reason="it failed 10 times in a row", jitter_seconds=60)
    await keeper.update_schedules(place.client)
    one, two = [(await place.handle(name).describe()).schedule for name in (ref, beat)]
    assert (one.state.paused, one.state.note) == (True, "the schedule is paused")
    assert (two.state.paused, two.state.note) == (True, "the schedule is paused: it failed 10 times in a row")
    assert two.spec.jitter == timedelta(seconds=60)
    place.change(ref, enabled=True, schedule="30 10 * * *")
    place.change(beat, ended_at=NOW, paused_reason="")
    await keeper.update_schedules(place.client)
    one, two = [(await place.handle(name).describe()).schedule for name in (ref, beat)]
    assert not one.state.paused
    assert one.spec.calendars[0].hour[0].start == 10
    assert two.state.note == "the schedule has ended"
    place.delete(ref)
    await keeper.update_schedules(place.client)
    assert not await place.there(ref)
    assert await place.there(beat)


async def test_a_paused_agent_pauses_its_schedules(place: Place) -> None:
    ref = place.plan()
    keeper = place.keeper()
    await keeper.update_schedules(place.client)
    for status, paused in ((AgentStatus.PAUSED, True), (AgentStatus.ACTIVE, False)):
        with place.store.begin() as tx:
            agent = tx.agents.find_agent_by_slug("ada")
            assert agent is not None
            tx.agents.change(agent, AgentChange(status=status), "operator")
        await keeper.update_schedules(place.client)
        assert (await place.handle(ref).describe()).schedule.state.paused is paused


async def test_what_changed_in_temporal_is_put_right_and_strays_go(place: Place) -> None:
    """At the start and hourly everything is compared, so that whatever was lost or done meanwhile heals."""
    ref, lost, shifted = place.plan(), place.plan("0 8 * * *"), place.plan("0 7 * * *")
    await place.keeper().update_schedules(place.client)
    await place.handle(ref).pause(note="by hand")
    await place.handle(lost).delete()
    changed = (await place.handle(shifted).describe()).schedule

    def hourly(_: ScheduleUpdateInput) -> ScheduleUpdate:
        return ScheduleUpdate(replace(changed, spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(timedelta(hours=1))])))

    await place.handle(shifted).update(hourly)
    stray = await place.client.create_schedule(
        f"{place.queue}-cron-99",
        Schedule(
            action=ScheduleActionStartWorkflow("ScheduledWorkflow", id="x", task_queue=place.queue), spec=ScheduleSpec()
        ),
    )
    others = [
        await place.client.create_schedule(
            name, Schedule(action=ScheduleActionStartWorkflow("X", id="x", task_queue="other"), spec=ScheduleSpec())
        )
        for name in (f"{place.queue}-cron-98", f"{place.queue}-backup", f"other-{place.queue}-cron-1")
    ]
    await listed(place.client, stray.id, *(other.id for other in others))
    await place.keeper().update_schedules(place.client)
    assert not (await place.handle(ref).describe()).schedule.state.paused
    assert await place.there(lost)
    assert (await place.handle(shifted).describe()).schedule.spec.calendars[0].hour[0].start == 7
    assert not await place.there("cron-99")
    for other in others:
        await other.describe()


async def test_a_kill_between_row_and_schedule_heals_at_the_next_start(place: Place) -> None:
    """Told, but not noted; and deleted here, but not there."""
    told, gone = place.plan(), place.plan("0 8 * * *")
    await place.keeper().update_schedules(place.client)
    place.change(told, followed="")
    place.delete(gone)
    await listed(place.client, f"{place.queue}-{gone}")
    await place.keeper().update_schedules(place.client)
    assert place.row(told).followed
    assert not await place.there(gone)


async def test_two_keepers_at_once_do_no_harm(place: Place) -> None:
    refs = [place.plan(f"{minute} 9 * * *") for minute in range(10)]
    keepers = [place.keeper(), place.keeper()]
    await asyncio.gather(*(keeper.update_schedules(place.client) for keeper in keepers))
    place.change(refs[0], enabled=False)
    place.delete(refs[1])
    await asyncio.gather(*(keeper.update_schedules(place.client) for keeper in keepers))
    assert [await place.there(ref) for ref in refs] == [True, False] + [True] * 8
    assert (await place.handle(refs[0]).describe()).schedule.state.paused
    assert all(place.row(ref).followed for ref in refs if ref != refs[1])


async def test_what_nobody_can_read_any_more_says_so_and_holds_up_nothing(place: Place) -> None:
    broken, fine = place.plan(), place.plan("0 8 * * *")
    place.change(broken, zone="Mars/Olympus")
    assert await place.keeper().update_schedules(place.client)
    assert "this time zone is unknown" in place.row(broken).follow_error
    assert await place.there(fine)
    place.change(broken, zone="UTC")
    await place.keeper().update_schedules(place.client)
    assert place.row(broken).follow_error == ""


async def test_what_temporal_does_not_let_us_do_is_said_and_tried_again(place: Place, server: int) -> None:
    ref = place.plan()
    async with key_gate(server, KEY) as gate:
        gate.denied = frozenset({"CreateSchedule"})
        place.client = await connect(Endpoint(gate.address, "default", api_key=KEY))
        keeper = place.keeper()
        assert not await keeper.update_schedules(place.client)
        assert place.row(ref).follow_error.startswith("Temporal refused: ")
        gate.denied = frozenset()
        assert await keeper.update_schedules(place.client)
        assert await place.there(ref)
    assert place.row(ref).follow_error == ""


async def test_a_change_is_sent_again_while_the_server_has_no_workers_of_its_own(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, folder = place.plan(), tmp_path / "server"
    folder.mkdir()
    async with temporal_server(folder) as server:
        place.client = await connect(Endpoint(server.address, "default"))
        assert await place.keeper().update_schedules(place.client)
        assert await place.there(ref)  # Its answer shows that the first task of the schedule's own workflow has ended.
    place.change(ref, enabled=False)
    async with temporal_server(folder, *NO_WORKERS) as server:
        client, keeper = await connect(Endpoint(server.address, "default")), place.keeper()

        async def is_refused() -> bool:
            assert not await keeper.update_schedules(client)
            return place.row(ref).follow_error.startswith("Temporal refused: no poller seen")

        with monkeypatch.context() as patch:
            patch.setattr(schedules_module, "_REQUEST_TIMEOUT", timedelta(seconds=1.5))
            await until(is_refused, "the answer of a server without workers")
    async with temporal_server(folder) as server:
        place.client = await connect(Endpoint(server.address, "default"))
        await until(lambda: keeper.update_schedules(place.client), "an answer to the change")
        assert (await place.handle(ref).describe()).schedule.state.paused
    assert place.row(ref).follow_error == ""


async def test_what_is_planned_while_temporal_is_away_is_told_when_it_is_back(place: Place, server: int) -> None:
    async with plain_gate(server) as port:
        client = await connect(Endpoint(f"127.0.0.1:{port}", "default"))
        running = asyncio.create_task(place.keeper().run(client))
        before = place.plan()
        await until(lambda: place.there(before), before)
    ref = place.plan("0 8 * * *")
    assert not await place.there(ref)
    async with plain_gate(server, port):
        await until(lambda: place.there(ref), ref)
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


CRONS = ["45 0-3 * * *", "30 1 * * *", "30 2 * * 1", "0 9 * * 1-5", "*/30 * * * *", "0 0 * * 5", "7 */5 13 * 4"]
ZONES = [AMSTERDAM, "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Havana", "Antarctica/Troll"]


@pytest.mark.parametrize("zone", ZONES)
async def test_temporal_comes_when_we_say(place: Place, zone: str) -> None:
    """Around every change of the clocks in the coming year; see ADR 17 for what its own calendars would do there."""
    where = ZoneInfo(zone)
    nights = [day for ahead in range(366) if clocks_change(day := NOW.date() + timedelta(days=ahead), where)]
    assert len(nights) >= 2
    for number, written in enumerate(CRONS):
        schedule = read_stored_schedule(written, zone, NOW)
        its_id = f"{place.queue}-{number}"
        await hold(place.client, its_id, schedule_spec(schedule, where, NOW, NOW))
        for night in nights:
            start = datetime.combine(night, time(), UTC) - timedelta(days=1)
            end = start + timedelta(days=3)
            assert await matching(place.client, its_id, start, end) == said(schedule, where, start, end), written


async def test_once_a_day_at_local_time_in_both_weeks_of_amsterdam(place: Place) -> None:
    for written, offsets in (("30 9 * * *", (1, 2)), ("30 1 * * *", (1, 2))):
        schedule = read_stored_schedule(written, AMSTERDAM, NOW)
        await hold(place.client, f"{place.queue}-{written}", schedule_spec(schedule, ZoneInfo(AMSTERDAM), NOW, NOW))
        for sunday in (date(2027, 3, 28), date(2027, 10, 31)):
            start = datetime.combine(sunday, time(), ZoneInfo(AMSTERDAM)) - timedelta(days=4)
            found = await matching(place.client, f"{place.queue}-{written}", start, start + timedelta(days=8))
            local = [moment.astimezone(ZoneInfo(AMSTERDAM)) for moment in found]
            assert [one.date() - sunday for one in local] == [timedelta(days=days) for days in range(-4, 4)]
            assert {f"{one:%H:%M}" for one in local} == {f"{int(written[3:].split()[0]):02}:30"}
            assert {one.utcoffset() for one in local} == {timedelta(hours=hours) for hours in offsets}


async def test_a_time_that_the_clocks_pass_over_comes_at_the_first_moment_after_the_gap(place: Place) -> None:
    where = ZoneInfo(AMSTERDAM)
    schedule = read_schedule("30 2 * * *", AMSTERDAM, NOW)
    await hold(place.client, f"{place.queue}-gap", schedule_spec(schedule, where, NOW, NOW))
    start = datetime(2027, 3, 27, tzinfo=where)
    found = await matching(place.client, f"{place.queue}-gap", start, start + timedelta(days=3))
    local = [f"{moment.astimezone(where):%d %H:%M}" for moment in found]
    assert local == ["27 02:30", "28 03:00", "29 02:30"]


async def test_an_interval_keeps_its_anchor_and_a_moment_comes_once(place: Place) -> None:
    utc, anchor = ZoneInfo("UTC"), NOW + timedelta(seconds=17, microseconds=5)
    for number, written in enumerate(("every 7m", "every 36h", "at 2026-11-23 09:00", "in 20m")):
        schedule = read_stored_schedule(written, "UTC", anchor)
        await hold(place.client, f"{place.queue}-{number}", schedule_spec(schedule, utc, anchor, NOW))
        end = NOW + timedelta(days=4)
        ours = said(schedule, utc, NOW, end, anchor)
        assert await matching(place.client, f"{place.queue}-{number}", NOW, end) == ours


def said(
    written: domain.Schedule, zone: ZoneInfo, start: datetime, end: datetime, anchor: datetime = NOW
) -> list[datetime]:
    """Return when we say that it comes, the end included."""
    return list(takewhile(lambda moment: moment <= end, times_after(written, zone, anchor, start)))


async def hold(client: Client, its_id: str, spec: ScheduleSpec) -> None:
    action = ScheduleActionStartWorkflow("X", id="x", task_queue="nobody")
    handle = await client.create_schedule(its_id, Schedule(action, spec, state=ScheduleState(paused=True)))
    assert (await handle.describe()).schedule.spec == spec, "read back as it was written, so that it can be compared"


async def matching(client: Client, its_id: str, start: datetime, end: datetime) -> list[datetime]:
    """Ask the server when it would come; it names a thousand times at most."""
    request = ListScheduleMatchingTimesRequest(namespace="default", schedule_id=its_id)
    request.start_time.FromDatetime(start)
    request.end_time.FromDatetime(end)
    answer = await client.workflow_service.list_schedule_matching_times(request)
    return [moment.ToDatetime(tzinfo=UTC) for moment in answer.start_time]


async def listed(client: Client, *ids: str) -> None:
    """Return when the server's list has caught up with what it was told."""
    await until(lambda: _all_listed(client, set(ids)), ids)


async def _all_listed(client: Client, ids: set[str]) -> bool:
    return ids <= {entry.id async for entry in await client.list_schedules()}


async def until(true: Callable[[], Awaitable[bool]], what: object) -> None:
    """Ask again and again, for nobody tells."""
    async with asyncio.timeout(60):
        while not await true():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_reminder_of_which_temporal_hears_too_late_comes_all_the_same(place: Place) -> None:
    ref = place.plan("in 20m")
    planned = place.row(ref).anchored_at - timedelta(hours=1)
    place.change(ref, anchored_at=planned)
    await place.keeper().update_schedules(place.client)
    with place.store.view() as tx:
        job = tx.jobs.get(f"{place.queue}-{ref}-{planned + timedelta(minutes=20):%Y-%m-%dT%H:%M:%SZ}")
    assert (job.schedule, job.status) == (ref, JobStatus.PENDING)
    assert place.row(ref).ended_at is not None
    await place.keeper().update_schedules(place.client)
    assert place.row(ref).runs == 1
    assert (await place.handle(ref).describe()).schedule.state.paused


async def test_a_late_reminder_comes_although_the_store_fails_once_it_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal has the schedule, and the connection to the store is cut before the run has begun."""
    keeper = place.keeper()
    await keeper.update_schedules(place.client)  # the next full comparison is an hour away
    ref = place.plan("in 20m")
    place.change(ref, anchored_at=place.row(ref).anchored_at - timedelta(hours=1))
    with monkeypatch.context() as cut:
        cut.setattr(ScheduleRuns, "begin_missed_run", Mock(side_effect=StoreBusy("cut")))
        with pytest.raises(StoreBusy):
            await keeper.update_schedules(place.client)
    assert await place.there(ref)
    await keeper.update_schedules(place.client)
    assert place.row(ref).runs == 1
