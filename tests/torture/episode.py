"""One episode: messages are sent while processes are disturbed, and the ledger is made when all has settled."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.database import asking_again
from tests.support.four_platforms import Platforms, four_servers
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.torture.evidence import Findings, script, words_of
from tests.torture.lanes import PLATFORM_LANES, WITHOUT_KEYS, Clients, Correspondent, clients_of
from tests.torture.layouts import Layout, connected, one_process
from tests.torture.ledger import (
    ANSWERED_TWICE,
    BOUGHT_AGAIN,
    ENDED,
    LEFT_OPEN,
    REFUSED,
    UNACKNOWLEDGED,
    UNMARKED,
    Disturbed,
    Ledger,
)
from tests.torture.plan import DEADLY, LANES, Disturbance, Harm, Plan, Point, plan_lane
from tests.torture.several_processes import separate, two_hosts

SETTLING = 90.0
"""Seconds after the last disturbance in which everything is to be answered; only a failure takes them."""
LOOK = 0.25
AFTERMATH = 2.0
"""Seconds after everything is answered in which nothing more may happen; the reconciler looks twice in it."""
FIRST_LEARNED = 9_000_000
"""The numbers of episodes in which the named points are learned; the ids of all messages are different."""
LAYOUTS = {"one": one_process, "separate": separate, "two-hosts": two_hosts}


@dataclass
class Outcome:
    """What an episode has come to; everything in it is JSON."""

    number: int
    seconds: float = 0.0
    figures: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    messages: Counter[str] = field(default_factory=Counter)
    harms: Counter[str] = field(default_factory=Counter)
    times: list[tuple[float, float]] = field(default_factory=list)
    """When each disturbance but those of clients began and ended, in seconds of the monotonic clock."""
    points: list[str] = field(default_factory=list)
    """The named points at which a process died."""
    known_points: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    plan: str = ""
    """The episode as JSON, if it has a fault."""
    prefix: list[str] = field(default_factory=list)
    """The shortest beginning of it that has a fault as well."""
    data_folder: str = ""
    """Where its data is."""

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(self.harms[harm.value] for harm in DEADLY)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        counts = {"figures": dict(self.figures), "messages": dict(self.messages), "harms": dict(self.harms)}
        return {**vars(self), **counts}


@dataclass
class Stage:
    """A running Maestro, its model and its platforms, on which episodes take place one after another."""

    layout: Layout
    llm: LLMServer
    platforms: Platforms
    _earlier: list[tuple[str, Correspondent, int]] = field(default_factory=list)
    """The platform lanes of the last episode: the users there, and how many words had arrived at its end."""

    @classmethod
    @asynccontextmanager
    async def running(cls, layout: str, folder: Path) -> AsyncIterator["Stage"]:
        """Start everything."""
        with LLMServer.running() as llm:
            async with four_servers() as platforms, LAYOUTS[layout](folder, llm, platforms) as running:
                yield cls(running, llm, platforms)

    async def learn_points(self) -> None:
        """Send messages on each lane without a disturbance, and put the points that they pass on the menu.

        Raises ``AssertionError`` when that leaves a fault.
        """
        self.offer_points(await self._passed_points())

    def offer_points(self, points: Sequence[Point]) -> None:
        """Put these points on the menu."""
        self.layout.menu = replace(self.layout.menu, points=tuple(points))

    async def _passed_points(self) -> Sequence[Point]:
        points: dict[str, Point] = {}
        for number, lane in enumerate(LANES):
            self.layout.record()
            outcome = await self.play(plan_lane(FIRST_LEARNED + number, lane))
            assert not outcome.faults, f"without a disturbance: {outcome.faults}"
            passed = Counter(point.partition(" (")[0] for point in self.layout.passed())
            points = {name: Point(name, lane.name, times) for name, times in passed.items()} | points
        return sorted(points.values(), key=lambda one: one.name)

    async def play(self, plan: Plan) -> Outcome:
        """Run an episode."""
        began, outcome = time.monotonic(), Outcome(plan.number)
        refused = self.layout.refused
        self.llm.reset()
        for message in plan.messages:
            script(self.llm, message)
            outcome.messages[message.kind.value] += 1
        async with clients_of(plan, self.layout.site.web_port, self.layout.site.api_port, self.platforms) as clients:
            talking = asyncio.create_task(clients.talk())
            try:
                ended = await self._disturb(plan, clients, outcome)
                findings = await self._settled(plan, clients, talking, 0.0 if ended else SETTLING)
                ended = ended or await self._recovered()
            finally:
                talking.cancel()
            model_cut = any(one.harm is Harm.MODEL for one in plan.disturbances)
            ledger = Ledger.of(findings.lanes(clients), Disturbed(tuple(outcome.times), model_cut))
            self._add_rest(ledger, f"e{plan.number}", findings, talking)
            ledger.add(ENDED, f"e{plan.number}", bool(ended), ended)
            ledger.add(REFUSED, f"e{plan.number}", self.layout.refused - refused)
            self._earlier = [
                (lane, user, len(words_of(user))) for lane, user in clients.lanes.items() if lane in PLATFORM_LANES
            ]
        outcome.figures, outcome.faults = ledger.figures, ledger.faults
        outcome.seconds = round(time.monotonic() - began, 1)
        outcome.known_points, outcome.skipped = len(self.layout.menu.points), dict(self.layout.site.skipped)
        if outcome.faults:
            outcome.plan = plan.to_json()
        return outcome

    def _add_rest(self, ledger: Ledger, episode: str, findings: Findings, talking: "asyncio.Task[None]") -> None:
        """Count what belongs to no message, and what came late for the last episode."""
        for row in findings.left_open():
            ledger.add(LEFT_OPEN, episode, detail=row)
        for request in findings.stray_requests():
            ledger.add(BOUGHT_AGAIN, episode, detail=f"a request that belongs to no message: {request}")
        failure = "" if talking.done() and not talking.exception() else repr(talking)
        ledger.add(UNACKNOWLEDGED, episode, bool(failure), failure)
        for lane, user, before in self._earlier:
            late = words_of(user)[before:]
            figure = UNMARKED if lane in WITHOUT_KEYS else ANSWERED_TWICE
            ledger.add(figure, episode, bool(late), f"{lane}, after the end of the last episode: {late}")

    async def _disturb(self, plan: Plan, clients: Clients, outcome: Outcome) -> str:
        """Disturb it as planned; return what happened when a process did not become ready again, else nothing."""
        try:
            if plan.disturbances:
                # A process that has just started may not have reached its platforms yet.
                await connected(self.layout, self.platforms)
                clients.release(0)
                await self._accepted(plan)
            for place, one in enumerate(plan.disturbances):
                if one.patient:
                    await self.layout.recover()
                clients.release(place)
                if one.harm is not Harm.CRASH:
                    await asyncio.sleep(one.after)
                began = time.monotonic()
                done = await self._apply(one, clients)
                outcome.harms[done.value] += 1
                if done is not Harm.CLIENTS:
                    outcome.times.append((began, time.monotonic()))
                if done is Harm.CRASH:
                    outcome.points.append(one.target.partition(" (")[0])
            clients.release(len(clients.releases))
        except (AssertionError, TimeoutError) as error:
            return str(error) or "it is not ready again"
        return await self._recovered()

    async def _recovered(self) -> str:
        """Wait until every process is ready; return what happened when one is not, else nothing."""
        try:
            await self.layout.recover()
        except (AssertionError, TimeoutError) as error:
            return str(error) or "it is not ready again"
        return ""

    async def _accepted(self, plan: Plan) -> None:
        """Return when the channels are known that must be."""
        sql = "SELECT id FROM inbox WHERE content LIKE ?"
        for message_id in plan.first_of_known:
            await until(lambda: bool(self.layout.evidence.rows(sql, f"{message_id}%")), what=message_id)  # noqa: B023

    async def _apply(self, one: Disturbance, clients: Clients) -> Harm:
        if one.harm is Harm.CLIENTS:
            clients.hang_up()
            return one.harm
        return await self.layout.apply(one)

    async def _settled(self, plan: Plan, clients: Clients, talking: "asyncio.Task[None]", patience: float) -> Findings:
        """Return what is there when nothing is missing any more, or when it has been waited for long enough."""
        deadline = time.monotonic() + patience
        findings = Findings.read(plan, self.layout.evidence, self.llm)
        with asking_again():
            while time.monotonic() < deadline:
                if talking.done() and not (findings.missing(clients) or findings.left_open()):
                    await asyncio.sleep(AFTERMATH if plan.disturbances else 0)
                    break
                await asyncio.sleep(LOOK)
                findings = Findings.read(plan, self.layout.evidence, self.llm)
            return Findings.read(plan, self.layout.evidence, self.llm)
