"""What a conductor's tags do to a real store, and what people are told of it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.tags import perform_directive
from maestro.domain.agents.agent import Agent, AgentStatus, Permission
from maestro.domain.conducting.conductor import ActionOutcome, Requester
from maestro.domain.messages import Address
from maestro.domain.tags.actions import ActionState
from maestro.domain.tags.grammar import parse_answer
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from tests.support.fresh_store import fresh_store

NOW = datetime(2026, 3, 1, 12, 7, tzinfo=UTC)
HERE = Address(platform="discord", account="main", channel="42")
ADA = "[CREATE_AGENT]\nslug: ada\nvoice: dry\n[/CREATE_AGENT]"
FIELDS = "agent: ada\nname: morning\nschedule: 0 9 * * *\ntimezone: Europe/Berlin\nprompt: news"
MORNING = f"[CREATE_CRON]\n{FIELDS}\n[/CREATE_CRON]"
DONE, FAILED, REFUSED = ActionState.DONE, ActionState.FAILED, ActionState.REFUSED


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a conductor, and an assistant that has a channel."""
    opened = fresh_store(tmp_path / "maestro.db", clock=lambda: NOW)
    with opened.begin() as tx:
        for slug, role in (("chief", "conductor"), ("bob", "assistant")):
            tx.agents.save_agent(Agent(slug=slug, name=slug, role=role, created_at=NOW, updated_at=NOW))
    act(opened, "[UPDATE_AGENT:bob]\nchannels: here\n[/UPDATE_AGENT]")
    yield opened
    opened.close()


def act(
    store: Store,
    answer: str,
    agent: str = "chief",
    person: str = "discord:1",
    owner: bool = True,
    allowed: bool = False,
) -> list[ActionOutcome]:
    """Perform all tags of an answer in one transaction, as the step that records it does."""
    with store.begin() as tx:
        by = Requester(tx.agents.get_agent_by_slug(agent), person, owner, allowed, HERE, "job")
        return [perform_directive(tx, tag, by) for tag in parse_answer(answer).tags]


def audited(tx: Transaction) -> list[tuple[str, str, str]]:
    return [(entry.actor, entry.action, entry.subject) for entry in reversed(tx.system.audit.list_latest_entries(20))][
        1:
    ]


def test_an_agent_and_a_cron_for_it_in_one_answer(store: Store) -> None:
    created, planned = act(store, f"Well:\n{ADA}\n{MORNING}")
    assert created == ActionOutcome(DONE, "The agent @ada was created.", "ada")
    assert planned.state is DONE
    assert planned.detail == (
        "The cron “morning” of @ada was saved: 0 9 * * * (Europe/Berlin). The next run is on Monday "
        "2026-03-02 at 09:00; the schedule is called cron-1."
    )
    with store.view() as tx:
        ada = tx.agents.get_agent_by_slug("ada")
        [cron] = tx.background.schedules.list_schedules_of_agent(ada)
        assert (ada.voice, cron.name, cron.zone, cron.created_by) == ("dry", "morning", "Europe/Berlin", "discord:1")
        assert (cron.platform, cron.account, cron.channel) == ("discord", "main", "42")
        [version] = tx.agents.versions.list_versions(ada, limit=5)
        assert (version.actor, version.reason) == ("discord:1", "requested from @chief in job job")
        assert audited(tx) == [("discord:1", "agent.create", "ada"), ("discord:1", "cron.create", "cron-1")]


def test_a_wish_that_fails_leaves_nothing_and_the_others_are_done(store: Store) -> None:
    answer = f"[CREATE_AGENT]\nslug: eve\nchannels: [7, here]\n[/CREATE_AGENT]{MORNING}{ADA}{ADA}"
    assert [done.state for done in act(store, answer)] == [FAILED, FAILED, DONE, FAILED]
    with store.view() as tx:
        assert {agent.slug for agent in tx.agents.list_agents()} == {"ada", "bob", "chief"}
        assert [binding.channel for binding in tx.agents.list_bindings()] == ["42"]
        assert [action for _, action, _ in audited(tx)] == [
            "conductor.failed",
            "conductor.failed",
            "agent.create",
            "conductor.failed",
        ]


@pytest.mark.parametrize(
    ("agent", "person", "owner", "allowed", "reason"),
    [
        ("bob", "discord:1", True, True, "only a conductor can do that, and @bob is not one"),
        ("chief", "discord:2", False, False, "only an owner, or a person named in conductor.allowUsers"),
        ("chief", "", False, False, "no user asked for it"),
        ("chief", "", True, True, "no user asked for it"),
    ],
)
def test_only_a_conductor_acts_and_only_for_who_may_ask(
    store: Store, agent: str, person: str, owner: bool, allowed: bool, reason: str
) -> None:
    [refused] = act(store, ADA, agent, person, owner, allowed)
    assert refused.state is REFUSED
    assert refused.detail.startswith(f"The agent “ada” was not created: {reason}")
    with store.view() as tx:
        assert tx.agents.find_agent_by_slug("ada") is None
        assert audited(tx) == [(person or f"agent:{agent}", "conductor.refused", "create_agent")]


def test_a_person_whom_the_settings_name_may_ask_too(store: Store) -> None:
    assert act(store, ADA, person="discord:2", owner=False, allowed=True)[0].state is DONE


def test_an_update_changes_what_it_names_and_binds_channels(store: Store) -> None:
    channels = '["here", {"channel": 8, "permission": "read_only"}]'
    [done] = act(store, f"[UPDATE_AGENT:@Bob]\nvoice: dry\nchannels: {channels}\n[/UPDATE_AGENT]")
    assert done == ActionOutcome(
        DONE,
        "The agent @bob was changed: voice, and answers in 42 on discord, "
        "and is bound, without answering there, in 8 on discord.",
        "bob",
    )
    [done] = act(store, '[UPDATE_AGENT:bob]\nchannels: {"channel": 42, "permission": "notify_only"}\n[/UPDATE_AGENT]')
    assert done.state is DONE
    with store.view() as tx:
        bob = tx.agents.get_agent_by_slug("bob")
        assert (bob.name, bob.role, bob.voice) == ("bob", "assistant", "dry")
        permissions = {binding.channel: binding.permission for binding in tx.agents.list_channels(bob)}
        assert permissions == {"42": Permission.NOTIFY_ONLY, "8": Permission.READ_ONLY}


def test_an_update_that_changes_nothing_says_so(store: Store) -> None:
    changes = act(store, "[UPDATE_AGENT:bob]\nvoice: dry\nrole: assistant\n[/UPDATE_AGENT]" * 2)
    assert [done.detail for done in changes] == [
        "The agent @bob was changed: voice.",
        "The agent @bob has these settings already.",
    ]
    with store.view() as tx:
        assert audited(tx)[-2:] == [("discord:1", "agent.change", "bob"), ("discord:1", "agent.same", "bob")]


@pytest.mark.parametrize("field", ["role: assistant", "status: paused", "status: archived\nvoice: dry"])
def test_a_conductor_cannot_lock_itself_out(store: Store, field: str) -> None:
    [refused] = act(store, f"[UPDATE_AGENT:chief]\n{field}\n[/UPDATE_AGENT]")
    assert refused.state is REFUSED
    assert act(store, "[UPDATE_AGENT:chief]\nvoice: calm\n[/UPDATE_AGENT]")[0].state is DONE
    with store.view() as tx:
        chief = tx.agents.get_agent_by_slug("chief")
        assert (chief.role, chief.status, chief.voice) == ("conductor", AgentStatus.ACTIVE, "calm")


def test_a_client_is_created_once_and_pays_for_an_agent_of_the_same_answer(store: Store) -> None:
    client = "[CREATE_CLIENT]\nname: Acme\nplan: monthly\n[/CREATE_CLIENT]"
    answer = f"{client}[CREATE_AGENT]\nslug: ada\nclient: Acme\n[/CREATE_AGENT]{client}"
    assert [done.state for done in act(store, answer)] == [DONE, DONE, FAILED]
    with store.view() as tx:
        assert tx.agents.get_agent_by_slug("ada").client_id == tx.users.clients.get_client("Acme").id


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("[CREATE_AGENT]\nslug: ada", "The agent “ada” was not created: the tag was not written completely."),
        ("[CREATE_AGENT:ada]\nslug: ada\n[/CREATE_AGENT]", "the tag was not written completely"),
        (
            "[UPDATE_AGENT:nobody]\nvoice: x\n[/UPDATE_AGENT]",
            "The agent “nobody” was not changed: there is no agent 'nobody'.",
        ),
        (MORNING, "The cron “morning” was not created: there is no agent 'ada'."),
        (MORNING.replace("ada", "bob").replace("0 9", "61 9"), "the minute must be a number from 0 to 59"),
        (MORNING.replace("ada", "bob").replace("Berlin", "Nowhere"), "this time zone is unknown"),
        (MORNING.replace("ada", "bob").replace("CRON", "HEARTBEAT").replace("0 9 * * *", "every 10s"), "at least 30 s"),
        (MORNING.replace("ada", "bob") * 2, "the agent bob has a schedule 'morning' already"),
        (MORNING.replace("ada", "bob").replace("prompt: news", "jitter: 5000"), "jitter must be from 0 to 3600"),
        (MORNING.replace("ada", "bob").replace("prompt: news", "jitter: 5"), "prompt: is missing"),
        (MORNING.replace("ada", "bob").replace("0 9 * * *", "at 2026-02-28 09:00"), "that moment is over"),
        ("[CREATE_AGENT]\nslug: ada\n[colour]: red\n[STATE:x]: y\n[/CREATE_AGENT]", "slug: expected up to 63"),
        ('[CREATE_AGENT]\n{"slug": "ada", "[STATE:x] y [/STATE]": 1}\n[/CREATE_AGENT]', "no field (state:x) y"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence_without_tags(store: Store, answer: str, reason: str) -> None:
    failed = act(store, answer)[-1]
    assert failed.state is FAILED
    assert reason in failed.detail
    assert failed.detail.endswith(".")
    assert "[" not in failed.detail


def test_what_is_planned_without_a_name_gets_one_of_its_own(store: Store) -> None:
    def plan(kind: str, prompt: str) -> ActionOutcome:
        return act(store, f"[{kind}]\nagent: bob\nschedule: every 1h\nprompt: {prompt}\n[/{kind}]")[0]

    planned = [plan("CREATE_CRON", "a"), plan("CREATE_CRON", "b"), plan("CREATE_HEARTBEAT", "a")]
    assert [one.subject for one in planned] == ["bob/Cron Job", "bob/Cron Job 2", "bob/Heartbeat"]
    assert planned[1].detail.startswith("The cron “Cron Job 2” of @bob was saved: every 1h (UTC).")
    again = plan("CREATE_CRON", "b")
    assert (again.state, again.detail) == (
        FAILED,
        "The cron was not created: the agent bob has the same schedule already: 'Cron Job 2'; give this one a name.",
    )
    with store.view() as tx:
        assert [one.name for one in tx.background.schedules.list_schedules()] == ["Heartbeat", "Cron Job", "Cron Job 2"]


def test_what_was_done_is_told_without_tags(store: Store) -> None:
    body = "agent: bob\nname: the [STATE:x] y\nschedule: every 1h\nprompt: go\nchannel: [/STATE]"
    [done] = act(store, f"[CREATE_HEARTBEAT]\n{body}\n[/CREATE_HEARTBEAT]")
    assert done.state is DONE
    assert parse_answer(done.detail).tags == ()
    assert "(STATE:x)" in done.detail
    with store.view() as tx:
        assert [planned.name for planned in tx.background.schedules.list_schedules()] == ["the [STATE:x] y"]
