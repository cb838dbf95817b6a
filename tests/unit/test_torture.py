"""The ledger counts each fault that it is for, an episode comes from its seed, and the published page from its JSON."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from maestro.bootstrap.up import READY
from tests.torture import proof
from tests.torture.campaign import Order, Run
from tests.torture.episode import Outcome
from tests.torture.lane_process import Player
from tests.torture.layouts import is_refusal
from tests.torture.ledger import (
    ALLOWED,
    ANSWERED_TWICE,
    BOUGHT_AGAIN,
    DOUBLED,
    EFFECT_TWICE,
    ELSEWHERE,
    ENDED,
    FIGURES,
    IN_FLIGHT,
    LEFT_OPEN,
    LOST,
    MARKED,
    MISSED,
    OUT_OF_ORDER,
    UNCAUSED,
    UNKNOWN_EFFECT,
    UNMARKED,
    WAITED,
    Disturbed,
    LaneTrace,
    Ledger,
    Trace,
)
from tests.torture.plan import Harm, Kind, Menu, Message, Plan, Point, plan_episode

FIRST = Message("e1m0x", Kind.PLAIN, "web-helper", 0, 0.0, 0.0, again=False)
SECOND = replace(FIRST, id="e1m1x")
LONG = replace(FIRST, kind=Kind.LONG)
CALL = ("ask", 1)
GOOD = Trace(jobs=1, calls={(*CALL, "answered"): 1}, requests={CALL: [1.0]})
LANE = LaneTrace([FIRST, SECOND], ["e1m0x1", "e1m1x1"], {FIRST.id: GOOD, SECOND.id: GOOD}, [FIRST.id, SECOND.id])
DISTURBED = Disturbed(((0.0, 1.5), (2.5, 3.5), (4.5, 5.0)), model_cut=True)
AFTER_ALL = 100.0
"""A time at which nothing is disturbed any more."""
TOOL = Trace(jobs=1, tool_calls=("done",), effects=1)
MENU = Menu(
    ("maestro",),
    {Harm.STOP: ("maestro",), Harm.LOCK: ("",)},
    tuple(Point(f"before step {n}", "webhook") for n in range(7)),
)


def ledger(lane: LaneTrace, first: Trace = GOOD, disturbed: Disturbed = DISTURBED) -> Ledger:
    return Ledger.of([replace(lane, traces={**lane.traces, FIRST.id: first})], disturbed)


def after(state: str, *times: float) -> Trace:
    """Return what a message left whose first attempt at its call ended in a state."""
    return replace(GOOD, calls={(*CALL, "answered"): 1, (*CALL, state): 1}, requests={CALL: times})


def of_kind(kind: Kind, *words: str, platform_lacks_keys: bool = False) -> LaneTrace:
    return replace(
        LANE, messages=[replace(FIRST, kind=kind)], received_words=words, platform_lacks_keys=platform_lacks_keys
    )


def test_a_good_lane_has_no_figures() -> None:
    assert ledger(LANE) == Ledger()


@pytest.mark.parametrize(
    ("figure", "lane", "trace"),
    [
        (LOST, replace(LANE, received_words=["e1m1x1"]), GOOD),
        (LOST, of_kind(Kind.DELEGATED, "e1m0x1"), GOOD),
        (MISSED, of_kind(Kind.SCHEDULED), Trace()),
        (ANSWERED_TWICE, of_kind(Kind.PLAIN, "e1m0x1", "e1m0x1"), GOOD),
        (ANSWERED_TWICE, of_kind(Kind.PLAIN, "e1m0x1", "e1m0x1"), replace(GOOD, repeats=1)),
        (ANSWERED_TWICE, LANE, replace(GOOD, jobs=2)),
        (UNMARKED, of_kind(Kind.PLAIN, "e1m0x1", "e1m0x1", platform_lacks_keys=True), GOOD),
        (UNMARKED, of_kind(Kind.PLAIN, *["e1m0x1"] * 3, platform_lacks_keys=True), replace(GOOD, repeats=1)),
        (DOUBLED, of_kind(Kind.SCHEDULED, "e1m0x1", "e1m0x1"), GOOD),
        (DOUBLED, of_kind(Kind.SCHEDULED, "e1m0x1"), replace(GOOD, jobs=2)),
        (OUT_OF_ORDER, replace(LANE, received_words=["e1m1x1", "e1m0x1"]), GOOD),
        (OUT_OF_ORDER, replace(LANE, model_call_order=[FIRST.id, SECOND.id, FIRST.id]), GOOD),
        (OUT_OF_ORDER, of_kind(Kind.DELEGATED, "e1m0x2", "e1m0x1"), GOOD),
        (BOUGHT_AGAIN, LANE, replace(GOOD, requests={CALL: [1.0, 3.0]})),
        (BOUGHT_AGAIN, LANE, after("interrupted", AFTER_ALL, AFTER_ALL + 1)),
        (BOUGHT_AGAIN, LANE, replace(GOOD, calls={(*CALL, "answered"): 2}, requests={CALL: [1.0, 3.0]})),
        (BOUGHT_AGAIN, LANE, replace(GOOD, calls={(*CALL, "answered"): 1, (*CALL, "interrupted"): 4})),
        (EFFECT_TWICE, of_kind(Kind.TOOL, "e1m0x1"), replace(TOOL, effects=2)),
        (EFFECT_TWICE, of_kind(Kind.TOOL, "e1m0x1"), replace(TOOL, effects=0)),
        (EFFECT_TWICE, of_kind(Kind.TOOL, "e1m0x1"), replace(TOOL, tool_calls=())),
        (LEFT_OPEN, LANE, replace(GOOD, open=("job message-1 is failed",))),
    ],
)
def test_each_fault_of_a_message_is_counted(figure: str, lane: LaneTrace, trace: Trace) -> None:
    found = ledger(lane, trace)
    assert [name for name in FIGURES if found.figures[name]] == [figure]
    assert len(found.faults) == 1


@pytest.mark.parametrize("trace", [replace(GOOD, waits=1), after("failed", 1.0, 3.0)])
def test_a_call_that_fails_although_the_model_is_reachable_is_a_fault(trace: Trace) -> None:
    assert list(ledger(LANE, trace, replace(DISTURBED, model_cut=False)).figures) == [UNCAUSED]


def test_an_answer_in_another_channel_is_a_fault() -> None:
    other = replace(
        LANE, messages=[replace(FIRST, id="e1m2x")], received_words=["e1m2x1", "e1m0x1"], model_call_order=[]
    )
    lanes = [replace(one, traces={**LANE.traces, "e1m2x": GOOD}) for one in (LANE, other)]
    assert Ledger.of(lanes, DISTURBED) == Ledger(Counter({ELSEWHERE: 1}), ["e1m0x1 answered in another channel"])


def test_the_effect_of_a_tool_may_be_unknown() -> None:
    lost = replace(TOOL, tool_calls=("unknown",), effects=0)
    assert ledger(of_kind(Kind.TOOL, "e1m0x1"), lost) == Ledger(Counter({UNKNOWN_EFFECT: 1}), [])


def test_what_is_allowed_is_counted_apart() -> None:
    calls, times = {(*CALL, "answered"): 1, (*CALL, "interrupted"): 2}, [1.0, 3.0, 6.0]
    cut = replace(GOOD, calls=calls, requests={CALL: times}, repeats=1)
    found = ledger(of_kind(Kind.PLAIN, "e1m0x1", "e1m0x1", platform_lacks_keys=True), cut)
    assert found == Ledger(Counter({IN_FLIGHT: 2, MARKED: 1}), [])
    assert found.figures.keys() <= set(ALLOWED)


def test_a_message_that_waited_for_the_model_may_be_overtaken() -> None:
    found = ledger(
        replace(LANE, received_words=["e1m1x1", "e1m0x1"], model_call_order=[SECOND.id, FIRST.id]),
        replace(GOOD, waits=1),
    )
    assert found == Ledger(Counter({WAITED: 1}), [])
    parts = of_kind(Kind.DELEGATED, "e1m0x2", "e1m0x1")
    assert ledger(parts, replace(GOOD, waits=1)).figures[OUT_OF_ORDER] == 1


def test_a_message_that_waited_for_the_model_may_not_overtake() -> None:
    lane = replace(
        LANE, received_words=["e1m1x1", "e1m0x1"], traces={FIRST.id: GOOD, SECOND.id: replace(GOOD, waits=1)}
    )
    assert ledger(lane).figures[OUT_OF_ORDER] == 1


def test_only_the_first_parts_come_in_order_where_others_wait_for_an_agent() -> None:
    messages = [replace(FIRST, kind=Kind.DELEGATED), replace(SECOND, kind=Kind.DELEGATED)]
    lane = replace(LANE, messages=messages, first_marks=True)
    later = ["e1m0x1", "e1m1x1", "e1m1x2", "e1m0x2"]
    assert ledger(replace(lane, received_words=later)) == Ledger()
    assert ledger(replace(lane, received_words=["e1m1x1", "e1m0x1", "e1m0x2", "e1m1x2"])).figures[OUT_OF_ORDER] == 1


def test_a_process_that_ends_by_a_bug_does_not_refuse_to_start() -> None:
    assert is_refusal(["maestro: the store did not answer: the server closed the connection unexpectedly"], READY)
    assert is_refusal(["Traceback (most recent call last):", "maestro.domain.errors.StoreBusy: locked"], READY)
    assert not is_refusal(["maestro: Port 5070 is in use by another program"], READY)
    assert not is_refusal(["maestro: the namespace default does not exist"], READY)
    assert not is_refusal(["maestro: unexpected KeyError"], READY)
    assert not is_refusal(["Traceback (most recent call last):", "KeyError: 1"], READY)
    assert not is_refusal([READY, "maestro: the store did not answer"], READY)


def test_an_order_that_nothing_promises_is_not_looked_at() -> None:
    assert ledger(replace(LANE, received_words=["e1m1x1", "e1m0x1"], ordered=False)) == Ledger()
    parts = replace(of_kind(Kind.DELEGATED, "e1m0x2", "e1m0x1"), ordered=False)
    assert list(ledger(parts).figures) == [OUT_OF_ORDER]


def test_an_episode_comes_from_its_seed() -> None:
    assert plan_episode(1, 7, 5, MENU) == plan_episode(1, 7, 5, MENU) != plan_episode(2, 7, 5, MENU)
    plan = plan_episode(1, 7, 5, MENU)
    assert plan.kills == 5
    assert {message.kind for message in plan.messages} >= {Kind.TOOL, Kind.DELEGATED, Kind.WEBHOOK, Kind.SCHEDULED}
    assert len({message.id for message in plan.messages}) == len(plan.messages)


def test_every_named_point_has_its_turn() -> None:
    targets = [one.target for number in range(4) for one in plan_episode(1, number, 5, MENU).disturbances]
    assert {target.partition(" (")[0] for target in targets if target.startswith("before")} == {
        point.name for point in MENU.points
    }


def test_a_shorter_episode_is_a_part_of_it() -> None:
    plan = plan_episode(1, 7, 5, MENU)
    assert plan.first(2).disturbances == plan.disturbances[:2]
    assert "slack" not in plan.without("slack").lanes
    renamed = plan.renamed(8)
    assert renamed.disturbances == plan.disturbances
    assert [one.id.partition("m")[::2] for one in renamed.messages] == [
        ("e8", one.id.partition("m")[2]) for one in plan.messages
    ]


class FaultyStage:
    """A stage on which a process ends after three disturbances with messages on Slack; messages are always lost."""

    def __init__(self) -> None:
        self.layout = SimpleNamespace(menu=MENU, copy_target=None)

    async def play(self, plan: Plan) -> Outcome:
        """Return the outcome of an episode."""
        ended = len(plan.disturbances) >= 3 and "slack" in plan.lanes
        return Outcome(plan.number, figures=Counter({LOST: 1, ENDED: int(ended)}), faults=["e"])


async def test_a_fault_has_the_shortest_beginning_that_shows_it_and_the_folder_of_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = FaultyStage()

    async def open_stage(_: Player) -> FaultyStage:
        return stage

    monkeypatch.setattr(Player, "_open", open_stage)
    outcome = await Player("one", 1, tmp_path, tmp_path / "faults", tmp_path / "points").play(7, 5)
    plan = plan_episode(1, 7, 5, MENU)
    assert outcome.prefix == [*map(str, plan.disturbances[:3]), "with messages in slack"]
    assert outcome.data_folder == str(tmp_path / "faults" / "episode-7") == str(stage.layout.copy_target)


def order(folder: Path, kills: int = 40) -> Order:
    return Order(kills, seed=1, store="sqlite", layout="one", lanes=1, folder=folder)


def played(run: Run, *numbers: int, faults: Sequence[str] = ()) -> Run:
    """Begin a piece of a run, and play episodes of it."""
    run.begin()
    for number in numbers:
        outcome = Outcome(
            number, faults=list(faults), harms=Counter({Harm.KILL: 6, Harm.CRASH: 4}), messages=Counter({Kind.PLAIN: 3})
        )
        run.add(outcome.as_json(), seconds=60.0 * number)
    return run


def test_a_run_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    played(Run.read(order(tmp_path)), 1, 3)
    order(tmp_path).path.open("a").write('{"outcome": {"number": 2, "ha')
    run = Run.read(order(tmp_path))
    assert (run.open_episodes, run.kills, run.messages) == ([(2, 10), (4, 10)], 20, 6)
    published = played(run, 2).as_json()
    assert published == Run.read(order(tmp_path)).as_json()
    assert (published["kills"], published["ordered"], published["seconds"]) == (30, 40, 300)
    assert sum(published["commits"].values()) == 30


def test_a_fault_stays_in_the_figures(tmp_path: Path) -> None:
    run = played(played(Run.read(order(tmp_path, kills=20)), 2, faults=["e2m0x lost"]), 1)
    assert (run.open_episodes, run.kills, len(run.faults)) == ([], 20, 1)


def test_a_run_that_is_complete_begins_anew(tmp_path: Path) -> None:
    played(Run.read(order(tmp_path, kills=10)), 1)
    run = Run.read(order(tmp_path, kills=10))
    assert run.open_episodes == []
    run.begin()
    assert (run.open_episodes, run.kills) == ([(1, 10)], 0)
    assert Run.read(order(tmp_path, kills=10)).open_episodes == [(1, 10)]
    assert Run.read(order(tmp_path, kills=20)).open_episodes == [(1, 10), (2, 10)]


@pytest.mark.parametrize(("path", "figures"), [(proof.PAGE, proof.page_figures), (proof.README, proof.readme_figures)])
def test_a_page_has_the_figures_of_the_published_ledger(path: Path, figures: Callable[[Any], str]) -> None:
    assert proof.read_figures(path) == figures(proof.read()) != ""


def test_the_published_ledger_is_without_a_fault() -> None:
    assert {name: [run["figures"][name] for run in proof.read() if run["figures"][name]] for name in FIGURES} == {
        name: [] for name in FIGURES
    }


def test_each_layout_and_store_is_published_with_a_thousand_kills_of_committed_code() -> None:
    runs = proof.read()
    assert [(run["layout"], run["store"], run["kills"], run["ordered"]) for run in runs] == [
        (layout, store, 1_000, 1_000)
        for layout in proof.LAYOUTS
        for store in proof.STORES
        if (layout, store) != ("two-hosts", "sqlite")  # hosts share no disk
    ]
    assert [commit for run in runs for commit in run["commits"] if not commit.isalnum()] == []
