"""Who answers: first match wins, only active agents (specification 003, step 2; decisions 2 and 3)."""

from datetime import UTC, datetime

import pytest

from maestro.domain.agents import CONDUCTOR, Agent, AgentChannel, Permission
from maestro.domain.messages import Address, IncomingMessage
from maestro.domain.routing import may_talk, route

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def agent(number: int, slug: str, name: str = "", role: str = "assistant") -> Agent:
    """Make an agent."""
    return Agent(id=number, slug=slug, name=name or slug, role=role, created_at=NOW, updated_at=NOW)


BOSS = agent(1, "boss", "The Boss", CONDUCTOR)
CODER = agent(2, "coder", "C++ Coder")
WRITER = agent(3, "writer", "Wanda")
AGENTS = (BOSS, CODER, WRITER)


def message(
    content: str = "hello", *, direct: bool = False, owner: bool = False, channel: str = "c", platform: str = "discord"
) -> IncomingMessage:
    """Make a message."""
    return IncomingMessage(
        id="m",
        address=Address(platform=platform, channel=channel),
        user_id="u",
        content=content,
        sent_at=NOW,
        is_direct=direct,
        is_owner=owner,
    )


def binding(agent_id: int, permission: Permission = Permission.FULL) -> AgentChannel:
    """Bind a channel."""
    return AgentChannel(agent_id=agent_id, platform="discord", account="default", channel="c", permission=permission)


def test_the_bound_agent_beats_a_mention() -> None:
    assert route(message("@writer please"), binding(2), AGENTS).agent is CODER


def test_a_binding_to_an_agent_that_is_not_active_counts_for_nothing() -> None:
    assert route(message("@writer please"), binding(9), AGENTS).agent is WRITER
    assert route(message(), binding(9), AGENTS).agent is None


@pytest.mark.parametrize(
    ("content", "chosen"),
    [
        ("@coder fix it", CODER),
        ("fix it, @CODER!", CODER),
        ("(@coder)", CODER),
        ("@C++ Coder fix it", CODER),
        ("@wanda, a poem", WRITER),
        ("@coder and @writer", CODER),
        ("@writer and @coder", CODER),
        ("@coders fix it", None),
        ("mail coder@coder.example or x@coder", None),
        ("coder, fix it", None),
        ("@c", None),
    ],
)
def test_a_mention_is_a_whole_word_in_any_case(content: str, chosen: Agent | None) -> None:
    assert route(message(content), None, AGENTS).agent is chosen


def test_a_mention_beats_the_conductor_of_direct_messages() -> None:
    assert route(message("@writer", direct=True), None, AGENTS).agent is WRITER
    assert route(message("hi", direct=True), None, AGENTS).agent is BOSS


@pytest.mark.parametrize(
    ("platform", "channel", "chosen"),
    [
        ("web", "dashboard-agent-3", WRITER),
        ("web", "dashboard-agent-9", None),
        ("web", "dashboard-agent-", None),
        ("web", "dashboard-agent-3x", None),
        ("web", "3", None),
        ("discord", "dashboard-agent-3", None),
    ],
)
def test_the_dashboard_has_a_channel_for_each_agent(platform: str, channel: str, chosen: Agent | None) -> None:
    assert route(message(platform=platform, channel=channel), None, AGENTS).agent is chosen


def test_without_a_conductor_a_direct_message_finds_nobody() -> None:
    found = route(message(direct=True), None, (CODER, WRITER))
    assert (found.agent, found.reason) == (None, "there is no active conductor")


def test_the_fallback_agent_answers_what_nobody_else_does() -> None:
    assert route(message(), None, AGENTS, fallback="writer").agent is WRITER
    assert route(message(), None, AGENTS, fallback="nobody").agent is None
    assert route(message("@coder"), None, AGENTS, fallback="writer").agent is CODER


@pytest.mark.parametrize("permission", [Permission.READ_ONLY, Permission.NOTIFY_ONLY])
def test_only_full_permission_lets_people_talk_but_owners_always_may(permission: Permission) -> None:
    refusal = may_talk(message(), binding(1, permission))
    assert refusal is not None
    assert permission in refusal
    assert may_talk(message(owner=True), binding(1, permission)) is None
    assert may_talk(message(), binding(1)) is None
    assert may_talk(message(), None) is None
