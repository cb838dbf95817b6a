"""Who goes first: shares by weight, nobody waits for ever, nobody saves up turns (docs/decisions.md: priorities)."""

import itertools
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maestro.domain.messages import Address
from maestro.domain.precedence import (
    MOST_IDLE_KEYS,
    ClaimCandidate,
    ClaimOrder,
    FairQueue,
    Priority,
    build_precedence,
    is_background_priority,
)

PLACE = Address(platform="whatsapp", account="shop", channel="+31612345678")


def served(line: FairQueue[str], times: int) -> list[str]:
    """Serve so many times, and let everybody who was served wait again at once."""
    found = []
    for _ in range(times):
        who = line.take_item()
        found.append(who)
        line.add_item(who, WEIGHTS.get(who, 1.0), who)
    return found


WEIGHTS = {"heavy": 5.0}


def line_of(*names: str) -> FairQueue[str]:
    """Return a line in which each of these waits once."""
    line: FairQueue[str] = FairQueue()
    for name in names:
        line.add_item(name, WEIGHTS.get(name, 1.0), name)
    return line


def candidate(job_id: str, client: int | None = None, *, priority: int = 5, weight: float = 1.0) -> ClaimCandidate:
    """Return a job of a client, or of a channel of its own."""
    return ClaimCandidate(job_id, priority, client, weight if client else None, "web", "default", f"of {job_id}")


def ids(chosen: Iterable[ClaimCandidate]) -> list[str]:
    """Return the jobs by their ids."""
    return [one.id for one in chosen]


# Whose work it is


def test_the_client_pays_for_its_share_by_its_weight() -> None:
    found = build_precedence(5, 3, 2.5, PLACE)
    assert (found.priority, found.key, found.weight) == (5, "client:3", 2.5)


def test_without_a_client_a_channel_has_its_share_and_nobody_reads_which() -> None:
    found = build_precedence(5, None, None, PLACE)
    assert found.key.startswith("channel:")
    assert len(found.key.encode()) <= 64
    assert "612345678" not in found.key
    other = build_precedence(5, None, None, PLACE.model_copy(update={"channel": "another"}))
    assert found.key == build_precedence(1, None, None, PLACE).key != other.key


@pytest.mark.parametrize(("priority", "behind"), [(1, False), (4, False), (5, False), (6, True), (10, True)])
def test_only_what_nobody_waits_for_gives_way(priority: int, behind: bool) -> None:
    assert is_background_priority(priority) is behind


# One line


def test_each_has_its_turn_and_one_of_weight_five_has_five() -> None:
    line = line_of("light", "heavy")
    assert Counter(served(line, 60)) == {"heavy": 50, "light": 10}


def test_the_jobs_of_one_keep_their_order() -> None:
    line: FairQueue[str] = FairQueue()
    for name in ("a1", "a2", "b1", "a3", "b2"):
        line.add_item(name[0], 1.0, name)
    assert [line.take_item() for _ in range(5)] == ["a1", "b1", "a2", "b2", "a3"]


def test_nobody_saves_up_turns_while_they_do_not_wait() -> None:
    line = line_of("a")
    served(line, 100)
    line.add_item("late", 1.0, "late")
    assert Counter(served(line, 20)) == {"a": 10, "late": 10}


def test_who_leaves_without_a_turn_pays_for_none() -> None:
    line = line_of("a", "a", "b")
    line.take_uncharged()
    assert {line.take_item(), line.take_item()} == {"a", "b"}
    assert not line
    assert line.peek_item() is None


@settings(max_examples=60, deadline=None)
@given(
    weights=st.lists(st.sampled_from([0.1, 0.5, 1.0, 2.0, 10.0]), min_size=2, max_size=8),
    turns=st.integers(min_value=200, max_value=600),
)
def test_shares_follow_the_weights(weights: list[float], turns: int) -> None:
    line: FairQueue[int] = FairQueue()
    for number, weight in enumerate(weights):
        line.add_item(number, weight, number)
    had: Counter[int] = Counter()
    for _ in range(turns):
        number = line.take_item()
        had[number] += 1
        line.add_item(number, weights[number], number)
    for number, weight in enumerate(weights):
        share = turns * weight / sum(weights)
        assert abs(had[number] - share) <= 1 + len(weights) * weight / min(weights), (weights, had)


@settings(max_examples=60, deadline=None)
@given(fresh=st.integers(min_value=1, max_value=20), rounds=st.integers(min_value=1, max_value=5))
def test_nobody_waits_for_ever_behind_those_who_come_later(fresh: int, rounds: int) -> None:
    """However many new ones come, each with one thing to do, somebody with a second one has a turn."""
    line = line_of("patient")
    names = (f"fresh-{number}" for number in itertools.count())
    for name in itertools.islice(names, fresh):
        line.add_item(name, 1.0, name)
    for _ in range(rounds):
        line.add_item("patient", 1.0, "patient")
        waited = 0
        while line.take_item() != "patient":
            line.add_item(name := next(names), 1.0, name)
            waited += 1
            assert waited <= 3 * (fresh + 1)


def test_those_who_came_once_are_forgotten() -> None:
    line: FairQueue[str] = FairQueue()
    for number in range(20 * MOST_IDLE_KEYS):
        line.add_item(f"channel-{number}", 1.0, "once")
        line.take_item()
    assert len(line._due) <= 2 * MOST_IDLE_KEYS


# Which jobs begin


def test_the_most_urgent_begin_first_whoever_they_belong_to() -> None:
    found = [candidate("scheduled", priority=10), candidate("message"), candidate("owner", priority=Priority.OWNER)]
    assert ids(ClaimOrder().choose_jobs(found, 10, 10)) == ["owner", "message", "scheduled"]


def test_a_flood_of_one_does_not_keep_another_waiting() -> None:
    flood = [candidate(f"a{number}", 1) for number in range(1000)]
    order = ClaimOrder()
    assert ids(order.choose_jobs([*flood, candidate("b", 2)], 4, 0)) == ["a0", "b", "a1", "a2"]
    assert ids(order.choose_jobs([*flood[3:], candidate("c")], 3, 0)) == ["a3", "c", "a4"]


def test_without_fairness_first_come_is_first_served() -> None:
    found = [candidate("a0", 1), candidate("a1", 1), candidate("b", 2, weight=100)]
    assert ids(ClaimOrder(fair=False).choose_jobs(found, 3, 0)) == ["a0", "a1", "b"]


def test_whose_turn_it_is_is_remembered_from_one_look_to_the_next() -> None:
    order, waiting = ClaimOrder(), {"a": 1000, "b": 1000}
    had: Counter[str] = Counter()
    for _ in range(60):
        found = [
            candidate(f"{name}-{left}", client, weight=5.0 if client == 1 else 1.0)
            for client, (name, left) in enumerate(waiting.items(), 1)
        ]
        [one] = order.choose_jobs(found, 1, 0)
        name = one.id[0]
        waiting[name] -= 1
        had[name] += 1
    assert had == {"a": 50, "b": 10}


def test_jobs_of_the_background_begin_only_where_there_is_room_for_them() -> None:
    machines = [candidate(f"m{number}", priority=10) for number in range(9)]
    order = ClaimOrder()
    assert ids(order.choose_jobs([candidate("p"), *machines], 5, 2)) == ["p", "m0", "m1"]
    assert ids(order.choose_jobs([candidate("q"), *machines[2:]], 5, 0)) == ["q"]
    assert ids(order.choose_jobs(machines[2:], 5, 1)) == ["m2"]
