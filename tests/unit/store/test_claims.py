"""Which jobs begin: by priority, then fairly between clients and channels, few at once in the background."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from maestro.domain.agents.agent import Agent, AgentChannel
from maestro.domain.jobs.job import Job, JobEnding, JobStatus, StepRef
from maestro.domain.llm.budgets import NewClient
from maestro.domain.precedence import ClaimOrder, Priority
from maestro.store.jobs.claims import CLAIM_LAPSES
from maestro.store.store import Store
from tests.support.fresh_store import fresh_store


class Clock:
    """A clock that goes only when it is told to."""

    now = datetime(2026, 11, 22, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = fresh_store(tmp_path / "maestro.db", clock)
    yield store
    store.close()


def add(store: Store, *names: str, client: int | None = None, channel: str = "", priority: int = 5) -> None:
    """Add pending jobs, each in a channel of its own unless one is named."""
    with store.begin() as tx:
        for name in names:
            job = Job(
                id=name,
                lane=name,
                client_id=client,
                priority=priority,
                platform="web",
                account="default",
                channel=channel or name,
                created_at=tx.now,
            )
            tx.jobs.add(job)


def client(store: Store, name: str, weight: float = 1.0) -> int:
    """Add a client and return its id."""
    with store.begin() as tx:
        return tx.users.clients.create_client(NewClient(name=name, weight=weight), "operator").id or 0


def agent(store: Store, slug: str, client_id: int | None = None) -> int:
    """Add an agent and return its id."""
    with store.begin() as tx:
        made = Agent(slug=slug, name=slug, client_id=client_id, created_at=tx.now, updated_at=tx.now)
        return tx.agents.save_agent(made).id or 0


def claimed(store: Store, limit: int = 10, order: ClaimOrder | None = None) -> list[str]:
    """Claim what may begin now."""
    with store.begin() as tx:
        return [job.id for job in tx.jobs.claim_jobs(limit, tx.now - CLAIM_LAPSES, order)]


def keys(store: Store) -> dict[str, tuple[str, float]]:
    """Claim everything and return in whose share each job is."""
    with store.begin() as tx:
        found = tx.jobs.claim_jobs(100, tx.now - CLAIM_LAPSES)
    return {one.id: (one.precedence.key.partition(":")[0], one.precedence.weight) for one in found}


def end(store: Store, name: str) -> None:
    """End a job that runs."""
    with store.begin() as tx:
        tx.jobs.mark_started(name)
        tx.jobs.close_job(name, JobEnding(status=JobStatus.COMPLETED))


def test_a_flood_of_one_channel_does_not_keep_another_waiting(store: Store) -> None:
    add(store, *(f"a{number:03}" for number in range(200)), channel="flooded")
    add(store, "b0", "b1", channel="quiet")
    order = ClaimOrder()
    assert claimed(store, 4, order) == ["a000", "b0", "a001", "b1"]
    assert claimed(store, 2, order) == ["a002", "a003"]


def test_a_client_has_its_share_by_its_weight_in_whatever_channels(store: Store) -> None:
    heavy, light = client(store, "Heavy", 5), client(store, "Light")
    add(store, *(f"light-{number}" for number in range(40)), client=light)
    add(store, *(f"heavy-{number}" for number in range(40)), client=heavy)
    first = Counter(name.partition("-")[0] for name in claimed(store, 24))
    assert first == {"heavy": 20, "light": 4}


def test_one_at_a_time_the_shares_are_the_same(store: Store) -> None:
    heavy, light, order = client(store, "Heavy", 3), client(store, "Light"), ClaimOrder()
    add(store, *(f"light-{number}" for number in range(20)), client=light)
    add(store, *(f"heavy-{number}" for number in range(20)), client=heavy)
    first = Counter(claimed(store, 1, order)[0].partition("-")[0] for _ in range(16))
    assert first == {"heavy": 12, "light": 4}


def test_without_fairness_first_come_is_first_served(store: Store) -> None:
    add(store, "a0", "a1", "a2", channel="flooded")
    add(store, "b0", channel="quiet")
    assert claimed(store, 3, ClaimOrder(fair=False)) == ["a0", "a1", "a2"]


def test_before_a_message_is_routed_its_channel_says_who_will_pay(store: Store) -> None:
    acme, globex = client(store, "Acme", 2), client(store, "Globex", 3)
    with_client, without = agent(store, "ada", globex), agent(store, "bob")
    with store.begin() as tx:
        for channel, agent_id, pays in (("own", without, acme), ("agents", with_client, None), ("free", without, None)):
            tx.agents.save_binding(
                AgentChannel(agent_id=agent_id, platform="web", account="default", channel=channel, client_id=pays)
            )
    add(store, "own", "agents", "free", "unbound")
    add(store, "routed", client=acme, channel="agents")
    assert keys(store) == {
        "own": ("client", 2),
        "agents": ("client", 3),
        "free": ("channel", 1),
        "unbound": ("channel", 1),
        "routed": ("client", 2),
    }


def test_the_agent_of_our_account_says_it_too(store: Store) -> None:
    ada = agent(store, "ada", client(store, "Acme", 2))
    with store.begin() as tx:
        tx.agents.set_configured_agent("web", "default", tx.agents.get(ada))
    add(store, "anywhere")
    assert keys(store) == {"anywhere": ("client", 2)}


def test_few_jobs_run_at_once_in_the_background_and_people_pass_them(store: Store) -> None:
    add(store, *(f"m{number}" for number in range(9)), priority=Priority.SCHEDULED)
    order = ClaimOrder(background=3)
    assert claimed(store, order=order) == ["m0", "m1", "m2"]
    add(store, "person")
    assert claimed(store, order=order) == ["person"], "what is claimed counts as running"
    end(store, "m1")
    assert claimed(store, order=order) == ["m3"]
    order.background = 5
    assert claimed(store, order=order) == ["m4", "m5"]


def test_nothing_is_there_to_claim_while_the_background_is_full(store: Store, clock: Clock) -> None:
    add(store, "m0", "m1", priority=Priority.SCHEDULED)
    assert claimed(store, order=ClaimOrder(background=1)) == ["m0"]
    with store.view() as tx:
        assert tx.jobs.is_background_full(1)
        assert not tx.jobs.is_background_full(2)
        assert not tx.jobs.has_claimable(tx.now - CLAIM_LAPSES, 1)
        assert tx.jobs.has_claimable(tx.now - CLAIM_LAPSES, 2)
    clock.now += CLAIM_LAPSES + timedelta(seconds=1)
    with store.view() as tx:
        assert not tx.jobs.is_background_full(1), "a claim that led to nothing keeps nobody out"
    assert claimed(store, order=ClaimOrder(background=1)) == ["m0"]


def test_of_a_crowd_no_more_begin_than_there_is_time_for_so_that_others_can_be_let_past(store: Store) -> None:
    add(store, *(f"a{number:02}" for number in range(20)), channel="flooded")
    order = ClaimOrder(in_hand=3)
    assert claimed(store, order=order) == ["a00", "a01", "a02"]
    add(store, "b", channel="quiet")
    assert claimed(store, order=order) == []
    with store.begin() as tx:
        tx.jobs.mark_started("a00")
        tx.jobs.mark_started("a01")
    assert claimed(store, order=order) == [], "between two steps they wait for us"
    with store.begin() as tx:
        for name in ("a00", "a01"):
            tx.jobs.steps.start_attempt(StepRef(job_id=name, step="model-1"), "call_model", 1)
    assert claimed(store, order=order) == ["a03", "b"], "inside a step they wait for somebody else"


@pytest.mark.parametrize("away", ["deliver", "never began"])
def test_jobs_that_stand_still_keep_no_crowd_out(store: Store, clock: Clock, away: str) -> None:
    order = ClaimOrder(in_hand=3)
    add(store, "x0", "x1", "x2", priority=Priority.SCHEDULED)
    with store.begin() as tx:
        for name in ("x0", "x1", "x2"):
            tx.jobs.mark_started(name)
            if away == "deliver":  # its process is gone: nothing takes the step that comes next
                step = StepRef(job_id=name, step="context")
                tx.jobs.steps.start_attempt(step, "build_context", 1)
                tx.jobs.steps.finish_step(step, step)
    add(store, *(f"a{number:02}" for number in range(20)))
    assert claimed(store, order=order) == []
    clock.now += CLAIM_LAPSES + timedelta(seconds=1)
    assert claimed(store, order=order) == ["a00", "a01", "a02"]


def test_jobs_that_try_a_step_again_keep_no_crowd_out(store: Store) -> None:
    add(store, *(f"a{number:02}" for number in range(20)))
    order = ClaimOrder(in_hand=3)
    for name in claimed(store, order=order):
        step = StepRef(job_id=name, step="deliver")
        with store.begin() as tx:
            tx.jobs.mark_started(name)
            tx.jobs.steps.start_attempt(step, "deliver", 1)
        with store.begin() as tx:
            tx.jobs.steps.fail_attempt(step, "SendFailed", "the platform is away")
    assert claimed(store, order=order) == ["a03", "a04", "a05"]


def test_where_many_wait_the_background_is_fair_too(store: Store) -> None:
    add(store, *(f"a{number}" for number in range(30)), channel="flooded", priority=Priority.SCHEDULED)
    add(store, "b0", channel="quiet", priority=Priority.SCHEDULED)
    assert claimed(store, 10, ClaimOrder(background=3)) == ["a0", "b0", "a1"]
