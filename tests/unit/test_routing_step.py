"""The routing step over a store: what it reads, how soon a message is answered, and whom it turns away."""

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from activities.routing import RoutingActivities
from maestro.domain.agents.agent import CONDUCTOR, Agent, AgentChannel, AgentStatus
from maestro.domain.jobs.flow import RouteAction, RouteOutcome
from maestro.domain.jobs.job import Job, JobStatus, StepRef
from maestro.domain.messages import Address, IncomingMessage
from maestro.domain.people.people import UNKNOWN_USER_REASONS, AccessRules, DmPolicy, PersonId
from maestro.domain.precedence import Priority
from maestro.domain.settings.jobs import RoutingSettings
from maestro.intake.access import AccessControl
from tests.support.job_rows import MORNING, JobRows
from tests.support.spoken import NoTyping

RULES = RoutingSettings(fallback_agent="last")


class Silent(NoTyping):
    """Shows no indicator, and notes for whom it should."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def start_indicator(self, job_id: str, address: Address, message_ids: Collection[str] = ()) -> bool:
        """Note it."""
        del address
        self.shown.append(job_id)
        return True


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        for slug, role, status in (
            ("boss", CONDUCTOR, AgentStatus.ACTIVE),
            ("last", "assistant", AgentStatus.ACTIVE),
            ("away", "assistant", AgentStatus.PAUSED),
        ):
            tx.agents.save_agent(
                Agent(slug=slug, name=slug, role=role, status=status, created_at=tx.now, updated_at=tx.now)
            )
    yield rows
    rows.store.close()


def message(content: str = "hello", user: str = "grace", channel: str = "c", *, owner: bool = False) -> IncomingMessage:
    """Make a direct message on Slack, where people have to be paired."""
    return IncomingMessage(
        id=f"{content} {user} {channel}",
        address=Address(platform="slack", channel=channel),
        user_id=user,
        content=content,
        sent_at=MORNING,
        is_direct=True,
        is_owner=owner,
    )


def routed(rows: JobRows, said: IncomingMessage) -> tuple[RouteOutcome, Job, list[str]]:
    """Route a message; return the outcome, its job, and for whom typing was shown."""
    step, typing = StepRef(job_id=f"message-{said.id}", step="route"), Silent()
    with rows.store.begin() as tx:
        row = tx.inbox.add(said, step.job_id)
        tx.jobs.add(Job(id=step.job_id, inbox_id=row.id, created_at=tx.now, **said.address.model_dump()))
        tx.jobs.steps.start_attempt(step, "choose_agent", 1)
    access = AccessControl(AccessRules(frozenset({"slack:chief"}), {"web": DmPolicy.OPEN}), RULES)
    outcome = RoutingActivities(rows.store, typing, lambda: access).choose_agent(step)
    with rows.store.view() as tx:
        return outcome, tx.jobs.get(step.job_id), typing.shown


@pytest.mark.parametrize(
    ("said", "agent", "priority"),
    [
        (message(owner=True), "boss", Priority.OWNER),
        (message(user="known"), "boss", Priority.CONDUCTOR),
        (message("hi @ada", user="known"), "ada", Priority.MESSAGE),
    ],
)
def test_owners_come_before_conductors_and_those_before_the_rest(
    rows: JobRows, said: IncomingMessage, agent: str, priority: int
) -> None:
    with rows.store.begin() as tx:
        tx.users.pairings.grant_access(PersonId("slack", "known"), "", "operator")
    outcome, job, shown = routed(rows, said)
    assert (outcome.action, outcome.agent, job.priority, shown) == (RouteAction.ANSWER, agent, priority, [job.id])


def test_a_stranger_is_turned_away_without_a_sign_that_anybody_types(rows: JobRows) -> None:
    outcome, job, shown = routed(rows, message())
    assert (outcome.action, outcome.reason) == (RouteAction.DROP, UNKNOWN_USER_REASONS[DmPolicy.PAIRING])
    assert (job.status, job.reason, shown) == (JobStatus.DROPPED, outcome.reason, [])


def test_who_became_an_owner_since_the_message_came_counts_as_one(rows: JobRows) -> None:
    with rows.store.begin() as tx:
        tx.users.owners.add_owner(PersonId("slack", "grace"), "operator")
    assert routed(rows, message())[0].agent == "boss"


@pytest.mark.parametrize(
    ("content", "bound", "account", "read"),
    [
        ("hello", None, None, ["boss", "last"]),
        ("hi @ada", None, None, ["ada", "boss", "last"]),
        ("hi @boss", "ada", None, ["ada"]),
        ("hi @boss", "ada", "last", ["ada", "last"]),
        ("hello", "away", None, ["boss", "last"]),
    ],
)
def test_only_the_agents_that_can_be_chosen_are_read(
    rows: JobRows, content: str, bound: str | None, account: str | None, read: list[str]
) -> None:
    with rows.store.begin() as tx:
        agents = {agent.slug: agent for agent in tx.agents.list_agents()}
        owner = agents[bound].id or 0 if bound else 0
        binding = AgentChannel(agent_id=owner, platform="slack", account="default", channel="c") if bound else None
        tx.agents.set_configured_agent("slack", "default", agents[account] if account else None)
        found = tx.agents.routing.read_snapshot(message(content), binding, RULES)
    assert [agent.slug for agent in found.agents] == read


@pytest.mark.parametrize(
    ("query", "plan"),
    [
        (
            "SELECT id, slug, name, role FROM agents WHERE status = ? ORDER BY id",
            "SEARCH agents USING COVERING INDEX ix_agents_routing (status=?)",
        ),
        (
            "SELECT id FROM inbox WHERE platform = ? AND user_id = ? AND pace = ? AND received_at > ? "
            "AND received_at <= ? LIMIT 1 OFFSET 29",
            "SEARCH inbox USING COVERING INDEX ix_inbox_person "
            "(platform=? AND user_id=? AND pace=? AND received_at>? AND received_at<?)",
        ),
    ],
)
def test_what_every_message_asks_is_found_by_an_index_alone(
    tmp_path: Path, rows: JobRows, query: str, plan: str
) -> None:
    del rows
    with closing(sqlite3.connect(tmp_path / "maestro.db")) as database:
        found = database.execute(f"EXPLAIN QUERY PLAN {query}", [""] * query.count("?")).fetchall()
    assert [row[-1] for row in found] == [plan]
