"""Who answers: first match wins, only active agents (docs/decisions.md: routing)."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from maestro.domain.agents.agent import CONDUCTOR
from maestro.domain.agents.routing import RoutableAgent, RoutingSnapshot, choose_route
from maestro.domain.messages import Address, Addressing, IncomingMessage
from maestro.domain.settings.jobs import RoutingSettings

NOW = datetime(2026, 1, 1, tzinfo=UTC)

BOSS = RoutableAgent(1, "boss", "The Boss", CONDUCTOR)
OWN = RoutableAgent(2, "own", "Own")
BOUND = RoutableAgent(3, "bound", "Bound")
MENTIONED = RoutableAgent(4, "mentioned", "C++ Dev (beta)")
OF_THE_DASHBOARD = RoutableAgent(5, "board", "Board")
LAST = RoutableAgent(6, "last", "Last")
SECOND_BOSS = RoutableAgent(7, "boss-2", "Boss 2", CONDUCTOR)
AGENTS = (BOSS, OWN, BOUND, MENTIONED, OF_THE_DASHBOARD, LAST, SECOND_BOSS)

CHANNEL = "dashboard-agent-5"
EVERYTHING = RoutingSnapshot(
    AGENTS,
    account_agent=OWN.id,
    bound_agent=BOUND.id,
    rules=RoutingSettings(conductor_channels=(f"web:{CHANNEL}",), fallback_agent="last"),
)
NO_CHANNEL_OF_THE_CONDUCTOR = RoutingSettings(fallback_agent="last")


def message(
    content: str = "hello",
    *,
    direct: bool = False,
    channel: str = "c",
    platform: str = "discord",
    to: Addressing = Addressing.NOBODY,
) -> IncomingMessage:
    """Make a message."""
    return IncomingMessage(
        addressing=to,
        id="m",
        address=Address(platform=platform, channel=channel),
        user_id="u",
        content=content,
        sent_at=NOW,
        is_direct=direct,
    )


ALL = message("hi @C++ Dev (beta)!", direct=True, channel=CHANNEL, platform="web")
"""A message that every rule fits; the table takes the conditions away one at a time."""
PLAIN = message("hi", direct=True, channel=CHANNEL, platform="web")
ELSEWHERE = message("hi", direct=True, platform="web")
UNTIED = replace(EVERYTHING, account_agent=None, bound_agent=None)
FREE = replace(UNTIED, rules=NO_CHANNEL_OF_THE_CONDUCTOR)
ALONE = replace(UNTIED, rules=RoutingSettings())


@pytest.mark.parametrize(
    ("said", "snapshot", "chosen", "reason"),
    [
        (ALL, EVERYTHING, OWN, "all messages of this account are for the agent"),
        (ALL, replace(EVERYTHING, account_agent=None), BOUND, "the channel is bound to the agent"),
        (ALL, UNTIED, MENTIONED, "the message mentions the agent"),
        (PLAIN, UNTIED, BOSS, "the channel is the conductor's"),
        (PLAIN, FREE, OF_THE_DASHBOARD, "the channel is the agent's own on the dashboard"),
        (ELSEWHERE, FREE, BOSS, "a direct message goes to the conductor"),
        (message("hi"), FREE, LAST, "no rule names an agent, so the fallback agent answers"),
        (message("hi"), ALONE, None, "no agent is bound to the channel and none is mentioned"),
    ],
)
def test_the_rules_with_their_conditions_taken_away_one_at_a_time(
    said: IncomingMessage, snapshot: RoutingSnapshot, chosen: RoutableAgent | None, reason: str
) -> None:
    found = choose_route(said, snapshot)
    assert (found.agent, found.reason) == (chosen, reason)


@pytest.mark.parametrize(
    ("inactive", "chosen"),
    [
        ({OWN}, BOUND),
        ({OWN, BOUND}, MENTIONED),
        ({OWN, BOUND, MENTIONED}, BOSS),
        ({OWN, BOUND, MENTIONED, BOSS}, SECOND_BOSS),
        ({OWN, BOUND, MENTIONED, BOSS, SECOND_BOSS}, OF_THE_DASHBOARD),
        ({OWN, BOUND, MENTIONED, BOSS, SECOND_BOSS, OF_THE_DASHBOARD}, LAST),
        (set(AGENTS), None),
    ],
)
def test_a_rule_whose_agent_is_not_active_gives_way_to_the_next(
    inactive: set[RoutableAgent], chosen: RoutableAgent | None
) -> None:
    active = tuple(agent for agent in AGENTS if agent not in inactive)
    assert choose_route(ALL, replace(EVERYTHING, agents=active)).agent is chosen


@pytest.mark.parametrize(
    ("platform", "channel", "chosen"),
    [
        ("web", "dashboard-agent-5", OF_THE_DASHBOARD),
        ("web", "dashboard-agent-99", None),
        ("web", "dashboard-agent-", None),
        ("web", "dashboard-agent-5x", None),
        ("web", "dashboard-agent-" + "9" * 40, None),
        ("web", "dashboard-agent-٥", None),
        ("web", "5", None),
        ("discord", "dashboard-agent-5", None),
    ],
)
def test_the_dashboard_has_a_channel_for_each_agent(platform: str, channel: str, chosen: RoutableAgent | None) -> None:
    assert choose_route(message(platform=platform, channel=channel), ALONE).agent is chosen


def test_the_conductors_channel_is_one_of_its_platform_alone() -> None:
    rules = RoutingSettings(conductor_channels=("slack:c",))
    assert choose_route(message(platform="slack"), RoutingSnapshot(AGENTS, rules=rules)).agent is BOSS
    assert choose_route(message(platform="discord"), RoutingSnapshot(AGENTS, rules=rules)).agent is None


def test_the_fallback_is_named_by_its_slug_and_must_be_active() -> None:
    assert (
        choose_route(message(), RoutingSnapshot(AGENTS, rules=RoutingSettings(fallback_agent="nobody"))).agent is None
    )
    assert choose_route(message(), RoutingSnapshot((BOSS,), rules=RoutingSettings(fallback_agent="last"))).agent is None


OF_ITS_OWN = RoutingSnapshot(
    AGENTS, account_agent=OWN.id, rules=RoutingSettings(conductor_channels=("discord:c",), fallback_agent="last")
)


@pytest.mark.parametrize(
    ("said", "snapshot", "chosen"),
    [
        (message(), OF_ITS_OWN, None),
        (message("@bound look"), OF_ITS_OWN, None),
        (message("@bound and @own look"), OF_ITS_OWN, None),
        (message("@own look"), OF_ITS_OWN, OWN),
        (message(to=Addressing.US), OF_ITS_OWN, OWN),
        (message(to=Addressing.REPLY), OF_ITS_OWN, OWN),
        (message(to=Addressing.ANYBODY), OF_ITS_OWN, OWN),
        (message(direct=True), OF_ITS_OWN, OWN),
        (message(), replace(OF_ITS_OWN, takes_part=True), OWN),
        (message(), replace(OF_ITS_OWN, bound_agent=OWN.id), OWN),
        (message(), replace(OF_ITS_OWN, bound_agent=BOUND.id), BOUND),
        (message(to=Addressing.US), replace(OF_ITS_OWN, bound_agent=BOUND.id), OWN),
    ],
)
def test_in_a_group_the_agent_of_our_account_answers_what_is_said_to_it(
    said: IncomingMessage, snapshot: RoutingSnapshot, chosen: RoutableAgent | None
) -> None:
    assert choose_route(said, snapshot).agent is chosen


@pytest.mark.parametrize(
    ("said", "chosen"),
    [
        (message(to=Addressing.US), BOSS),
        (message("@mentioned look", to=Addressing.US), MENTIONED),
        (message(to=Addressing.REPLY), None),
        (message(to=Addressing.ANYBODY), None),
    ],
)
def test_who_mentions_a_bot_that_has_no_agent_means_the_conductor(
    said: IncomingMessage, chosen: RoutableAgent | None
) -> None:
    assert choose_route(said, ALONE).agent is chosen


def test_without_a_conductor_a_mention_of_the_bot_is_the_fallbacks() -> None:
    rules = RoutingSettings(fallback_agent="last")
    assert choose_route(message(to=Addressing.US), RoutingSnapshot((LAST,), rules=rules)).agent is LAST


@pytest.mark.parametrize(
    ("said", "snapshot", "reason"),
    [
        (message(direct=True), RoutingSnapshot((OWN,)), "there is no active conductor"),
        (message(), OF_ITS_OWN, "neither the bot nor its agent is mentioned (requireMention)"),
        (
            message(),
            RoutingSnapshot((OWN,), bound_agent=BOUND.id),
            "the agent that is meant to answer here is not active, and no other rule names one",
        ),
    ],
)
def test_a_drop_has_its_reason(said: IncomingMessage, snapshot: RoutingSnapshot, reason: str) -> None:
    found = choose_route(said, snapshot)
    assert (found.agent, found.reason) == (None, reason)
