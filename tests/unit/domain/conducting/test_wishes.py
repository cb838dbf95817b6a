"""What a conductor's tags ask for, field by field."""

from collections.abc import Callable

import pytest

from maestro.domain.agents.agent import AgentStatus, Permission
from maestro.domain.agents.edits import NewAgent, NewBinding
from maestro.domain.conducting.directives import (
    normalize_slug,
    read_agent_creation,
    read_agent_update,
    read_client_creation,
    read_schedule_creation,
)
from maestro.domain.errors import InvalidEdit
from maestro.domain.messages import Address
from maestro.domain.tags.grammar import Tag, TagName, parse_answer

READERS: dict[TagName, Callable[[Tag, Address], object]] = {
    TagName.CREATE_AGENT: read_agent_creation,
    TagName.UPDATE_AGENT: read_agent_update,
    TagName.CREATE_CLIENT: lambda tag, asked_in: read_client_creation(tag),
}
HERE = Address(platform="discord", account="main", channel="42", thread="t")


def written(name: str, body: str, key: str = "") -> Tag:
    [tag] = parse_answer(f"[{name}{key}]\n{body}\n[/{name}]").tags
    assert tag.complete
    return tag


def test_an_agent_is_all_that_its_fields_say() -> None:
    body = """slug: @Ada
name: Ada L.
role: coder
description: Writes code
model: anthropic/claude-haiku-4-5
fallbacks: openai/gpt-4o-mini, ollama/qwen
allowed_tools: ["calculate", "get_time"]
skills: code-review
personality:
  voice: dry
  quirks:
    - rhymes
    - never shouts
system_prompt: You write code.
  Rules: be brief.
Ask when in doubt.
channels: [
  {"platform": "slack", "channelId": "C1", "permissions": "read_only", "key_by_user": true},
  "here", {"id": 123456789012345678}
]
allow_users: discord:1 slack:U2
daily_budget: 2.5"""
    agent, channels = read_agent_creation(written("CREATE_AGENT", body), HERE)
    assert (agent.slug, agent.name, agent.role, agent.description) == ("ada", "Ada L.", "coder", "Writes code")
    assert (agent.model, agent.fallbacks) == ("anthropic/claude-haiku-4-5", ("openai/gpt-4o-mini", "ollama/qwen"))
    assert (agent.tools, agent.skills) == (("calculate", "get_time"), ("code-review",))
    assert (agent.voice, agent.quirks) == ("dry", ("rhymes", "never shouts"))
    assert agent.system_prompt == "You write code.\n  Rules: be brief.\nAsk when in doubt."
    assert (agent.allow_users, agent.daily_budget_usd) == (("discord:1", "slack:U2"), 2.5)
    assert channels == (
        NewBinding(platform="slack", channel="C1", permission=Permission.READ_ONLY, key_by_user=True),
        NewBinding(platform="discord", account="main", channel="42"),
        NewBinding(platform="discord", account="main", channel="123456789012345678"),
    )


def test_what_is_left_empty_is_as_for_everybody() -> None:
    agent, channels = read_agent_creation(written("CREATE_AGENT", "slug: ada\nname:\ntools: null\nrole:"), HERE)
    assert (agent.name, agent.role, agent.tools, channels) == ("", "assistant", None, ())
    blank = "slug: ada\nmodel: null\nclient: null\ntools:\nskills:\nallow_users:\nquirks:\ndaily_budget:\nchannels:"
    assert read_agent_creation(written("CREATE_AGENT", blank), HERE)[0] == NewAgent(slug="ada", name="")
    change = read_agent_update(written("UPDATE_AGENT", "model: null\ndaily_budget:\ntools:", ":ada"), HERE)[0]
    assert (change.model, change.daily_budget_usd, change.tools) == ("", None, ())
    assert change.given_fields == {"model", "daily_budget_usd", "tools"}


def test_lists_may_be_written_without_quotation_marks() -> None:
    body = (
        "slug: ada\ntools: [calculate, 'get_time']\nquirks: [rhymes, never shouts]\nskills: []\nchannels: [here, C1, 7]"
    )
    agent, channels = read_agent_creation(written("CREATE_AGENT", body), HERE)
    assert (agent.tools, agent.skills) == (("calculate", "get_time"), ())
    assert agent.quirks == ("rhymes", "never shouts")
    assert [channel.channel for channel in channels] == ["42", "C1", "7"]
    [bound] = read_agent_creation(written("CREATE_AGENT", "slug: ada\nchannels: [123456]"), HERE)[1]
    assert bound.channel == "123456"


def test_a_change_names_only_what_changes() -> None:
    change, channels = read_agent_update(
        written("UPDATE_AGENT", "voice: dry\nlanguage: German\nstatus: paused\nmodel:", ":@Ada"), HERE
    )
    assert normalize_slug("@Ada") == "ada"
    assert change.given_fields == {"voice", "language", "status", "model"}
    assert change.language == "German"
    assert (change.status, change.model, channels) == (AgentStatus.PAUSED, "", ())
    assert read_agent_update(written("UPDATE_AGENT", "channels: here", ":ada"), HERE)[0].given_fields == frozenset()


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("", ("discord", "main", "42")),
        ("channel: here", ("discord", "main", "42")),
        ("channel: 77", ("discord", "main", "77")),
        ("channel_id: 77\naccount: second", ("discord", "second", "77")),
        ("platform: slack\nchannel: C1", ("slack", "default", "C1")),
    ],
)
def test_a_schedule_speaks_where_it_was_asked_for_unless_a_place_is_named(
    place: str, expected: tuple[str, str, str]
) -> None:
    body = f"agent: ada\nname: morning\nschedule: 0 9 * * 1-5\ntime_zone: Europe/Amsterdam\nprompt: 5\n{place}"
    wish = read_schedule_creation(written("CREATE_CRON", body), HERE)
    assert (wish.platform, wish.account, wish.channel) == expected
    assert (wish.agent, wish.name, wish.prompt, wish.timezone) == ("ada", "morning", "5", "Europe/Amsterdam")


def test_a_client_has_one_of_three_plans() -> None:
    wish = read_client_creation(written("CREATE_CLIENT", "name: Acme\nslug: acme\nplan: Per-Task\ndaily_budget: 3"))
    assert (wish.name, wish.slug, wish.plan, wish.daily_budget_usd) == ("Acme", "acme", "per_task", 3)


@pytest.mark.parametrize(
    ("name", "key", "body", "reason"),
    [
        ("CREATE_AGENT", "", "name: Ada", "slug: is missing"),
        ("CREATE_AGENT", "", "slug: a b", "slug: expected up to 63"),
        ("CREATE_AGENT", "", "slug: ada\ncolour: red", "there is no field colour; the fields are slug, name"),
        ("CREATE_AGENT", "", "slug: ada\nstatus: paused", "there is no field status"),
        ("CREATE_AGENT", "", "slug: ada\ntools: []\nallowed_tools: []", "tools is given twice"),
        ("CREATE_AGENT", "", "slug: ada\ntools: 5", "tools: expected a list"),
        ("CREATE_AGENT", "", "slug: ada\npersonality: dry", "personality: expected fields"),
        ("CREATE_AGENT", "", '{"slug": null}', "slug: is missing"),
        ("CREATE_AGENT", "", "slug: ada\ndaily_budget: $5", "dailyBudgetUsd: expected a number"),
        ("CREATE_AGENT", "", "slug: ada\ndaily_budget: -1", "dailyBudgetUsd: must be at least 0"),
        ("CREATE_AGENT", "", "slug: ada\nchannels: 5.5", "channels: expected fields, such as platform and channel"),
        ("CREATE_AGENT", "", 'slug: ada\nchannels: {"channel": "c", "colour": "red"}', "there is no field colour"),
        ("CREATE_AGENT", "", 'slug: ada\nchannels: {"platform": "slack"}', "name a channel on slack"),
        ("CREATE_AGENT", "", 'slug: ada\nchannels: {"channel": true}', "channel: expected a text"),
        ("CREATE_AGENT", "", 'slug: ada\nchannels: {"channel": "c", "permission": "all"}', "permission: expected"),
        ("UPDATE_AGENT", ":ada", "", "no field to change is given"),
        ("UPDATE_AGENT", ":ada", "slug: bob", "there is no field slug"),
        ("UPDATE_AGENT", ":ada", "force: true", "there is no field force"),
        ("CREATE_CRON", "", f"agent: ada\nname: {'n' * 65}\nschedule: every 1h\nprompt: x", "name: expected up to 64"),
        ("CREATE_HEARTBEAT", "", "name: n\nschedule: every 1h\nprompt: x", "agent: is missing"),
        ("CREATE_CRON", "", "agent: ada\nname: n\nschedule: every 1h\nscript: {}", "there is no field script"),
        ("CREATE_HEARTBEAT", "", "agent: ada\nschedule: every 1h\nscript: {}", "script.url: is missing"),
        ("CREATE_CRON", "", "agent: ada\nname: n\nplatform: slack", "name a channel on slack"),
        ("CREATE_CLIENT", "", "plan: monthly", "name: is missing"),
        ("CREATE_CLIENT", "", "name: Acme\nplan: yearly", "plan: expected 'per_task', 'monthly' or 'prepaid'"),
    ],
)
def test_a_wish_that_breaks_a_rule_says_which(name: str, key: str, body: str, reason: str) -> None:
    tag = written(name, body, key)
    with pytest.raises(InvalidEdit) as refused:
        READERS.get(tag.name, read_schedule_creation)(tag, HERE)
    assert reason in str(refused.value)
