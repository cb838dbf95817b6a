"""Who may talk to which agent (docs/decisions.md: access)."""

from datetime import UTC, datetime

import pytest

from maestro.domain.agents.agent import Agent, AgentChannel, Permission
from maestro.domain.people.people import Person, PersonId, access_refusal, is_unknown

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADA = PersonId("slack", "U:1")
OWNER = Person(ADA, is_owner=True)
SOMEBODY = Person(ADA)
KNOWN = Person(ADA, known=True)


def agent(allow_users: str | None = None) -> Agent:
    """Make an agent with such a list."""
    return Agent(id=1, slug="coder", name="Coder", allow_users=allow_users, created_at=NOW, updated_at=NOW)


def binding(permission: Permission) -> AgentChannel:
    """Bind a channel."""
    return AgentChannel(agent_id=1, platform="slack", account="default", channel="c", permission=permission)


FREE, LISTED, UNLISTED, FOR_NOBODY = agent(), agent("slack:U:0 slack:U:1"), agent("slack:U discord:U:1"), agent("")
FULL, READ_ONLY, NOTIFY_ONLY = (binding(permission) for permission in Permission)
LIST = "the user is not on the list of coder (allowUsers)"


@pytest.mark.parametrize(
    ("person", "asked", "bound", "reason"),
    [
        (OWNER, FREE, None, None),
        (OWNER, UNLISTED, READ_ONLY, None),
        (OWNER, FOR_NOBODY, NOTIFY_ONLY, None),
        (SOMEBODY, FREE, None, None),
        (SOMEBODY, FREE, FULL, None),
        (SOMEBODY, FREE, READ_ONLY, "the channel's permission is read_only"),
        (SOMEBODY, FREE, NOTIFY_ONLY, "the channel's permission is notify_only"),
        (SOMEBODY, LISTED, None, None),
        (SOMEBODY, LISTED, FULL, None),
        (SOMEBODY, LISTED, READ_ONLY, "the channel's permission is read_only"),
        (SOMEBODY, UNLISTED, None, LIST),
        (SOMEBODY, UNLISTED, FULL, LIST),
        (SOMEBODY, FOR_NOBODY, None, LIST),
        (KNOWN, UNLISTED, None, LIST),
        (KNOWN, FREE, READ_ONLY, "the channel's permission is read_only"),
    ],
)
def test_owners_then_the_channel_then_the_list_then_everybody(
    person: Person, asked: Agent, bound: AgentChannel | None, reason: str | None
) -> None:
    assert access_refusal(person, asked, bound) == reason


@pytest.mark.parametrize(
    ("person", "asked", "bound", "unknown"),
    [
        (OWNER, FREE, None, False),
        (KNOWN, FREE, None, False),
        (SOMEBODY, LISTED, None, False),
        (SOMEBODY, FREE, FULL, False),
        (SOMEBODY, FREE, None, True),
        (SOMEBODY, UNLISTED, None, True),
        (SOMEBODY, None, None, True),
        (SOMEBODY, FREE, READ_ONLY, True),
    ],
)
def test_known_are_owners_who_was_let_in_who_is_listed_and_everybody_in_a_channel_of_an_agent(
    person: Person, asked: Agent | None, bound: AgentChannel | None, unknown: bool
) -> None:
    assert is_unknown(person, asked, bound) is unknown
