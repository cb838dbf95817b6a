"""What may be asked for of agents, and what counts as asked for; what is different between two of their versions."""

from datetime import UTC, datetime
from typing import Any

import pytest

from maestro.domain.agents.agent import Agent, AgentStatus, AgentVersion, MemoryScope
from maestro.domain.agents.edits import (
    AgentChange,
    AgentFields,
    BindingChange,
    NewAgent,
    NewBinding,
    agent_fields,
    apply_change,
    removes_last_conductor,
    version_fields,
    write_fields,
)
from maestro.domain.agents.views import diff_fields
from maestro.domain.errors import InvalidEdit
from maestro.domain.llm.budgets import NewClient
from maestro.domain.values import read

NOW = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
WHOLE = AgentFields(
    name="Ada",
    role="coder",
    description="writes code",
    voice="dry",
    quirks=("Says hm.", 'Quotes "Knuth".'),
    system_prompt="Be careful.\nBe brief.",
    model="openai/gpt-4o",
    fallbacks=("gpt-4o-mini", "ollama/qwen3"),
    tools=("calculate", "search"),
    skills=(),
    allow_users=("web:grace",),
    memory_scope=MemoryScope.CONVERSATION,
    client="Acme",
    daily_budget_usd=0,
    status=AgentStatus.PAUSED,
)


def agent(**fields: Any) -> Agent:
    return Agent(slug="ada", name="Ada", created_at=NOW, updated_at=NOW, **fields)


# What is refused


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "slug: is missing; add it"),
        ({"slug": "Ada"}, "slug: expected up to 63 lower-case letters"),
        ({"slug": "-ada"}, "slug: expected up to 63"),
        ({"slug": "a" * 64}, "slug: expected up to 63"),
        ({"slug": "ada", "nam": "Ada"}, "nam: unknown field; the fields are name, role, .*systemPrompt"),
        ({"slug": "ada", "name": "Ada "}, "name: expected up to 64 characters without a blank at either end"),
        ({"slug": "ada", "name": "A\nda"}, "name: expected up to 64"),
        ({"slug": "ada", "name": None}, "name: expected a text"),
        ({"slug": "ada", "role": "The boss"}, "role: expected a lower-case word"),
        ({"slug": "ada", "systemPrompt": "x" * 100_001}, "systemPrompt: must have at most 100000 characters"),
        ({"slug": "ada", "description": "x" * 2_001}, "description: must have at most 2000 characters"),
        ({"slug": "ada", "voice": "x" * 201}, "voice: must have at most 200 characters"),
        ({"slug": "ada", "quirks": ["x"] * 21}, "quirks: must have at most 20 entries"),
        ({"slug": "ada", "quirks": ["x" * 501]}, r"quirks\[0\]: must have at most 500"),
        ({"slug": "ada", "model": "gpt 4o"}, "model: expected the name of a model without blanks"),
        ({"slug": "ada", "fallbacks": [""]}, r"fallbacks\[0\]: expected the name of a model"),
        ({"slug": "ada", "tools": ["run shell"]}, r"tools\[0\]: expected the name of a tool"),
        ({"slug": "ada", "tools": "calculate"}, "tools: expected a list"),
        ({"slug": "ada", "skills": ["Code Review"]}, r"skills\[0\]: expected up to 63"),
        ({"slug": "ada", "allowUsers": ["grace"]}, r"allowUsers\[0\]: expected platform:userId"),
        ({"slug": "ada", "memoryScope": "world"}, "memoryScope: expected 'agent' or 'conversation'"),
        ({"slug": "ada", "dailyBudgetUsd": -1}, "dailyBudgetUsd: must be at least 0"),
        ({"slug": "ada", "dailyBudgetUsd": float("nan")}, "dailyBudgetUsd: must be"),
        ({"slug": "ada", "status": "gone"}, "status: expected 'active', 'paused' or 'archived'"),
        ({"slug": "ada", "systemPrompt": "half \ud83d"}, "systemPrompt: expected whole characters"),
        ({"slug": "ada", "systemPrompt": "x\0"}, "systemPrompt: expected no NUL"),
        ({"slug": "ada", "quirks": ["x\0"]}, r"quirks\[0\]: expected no NUL"),
        ({"slug": "ada", "name": "half \ud83d"}, "name: expected only visible characters"),
        ({"slug": "ada", "name": "\x1b[31mAda"}, "name: expected only visible characters"),
        ({"slug": "ada", "name": "\u202eadA"}, "name: expected only visible characters"),
        ({"slug": "ada", "client": "\udc00"}, "client: expected only visible characters"),
    ],
)
def test_an_agent_that_breaks_a_rule_is_refused_with_its_field_and_the_fix(fields: Any, said: str) -> None:
    with pytest.raises(InvalidEdit, match=said):
        read(NewAgent, fields)


def test_every_mistake_is_told_at_once_and_no_value_is_quoted() -> None:
    with pytest.raises(InvalidEdit) as raised:
        read(NewAgent, {"slug": "SECRET", "name": " SECRET", "client": "SECRET "})
    assert [part.partition(":")[0] for part in str(raised.value).split("; ")] == ["name", "client", "slug"]
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    ("shape", "fields", "said"),
    [
        (NewBinding, {"platform": "web"}, "channel: is missing"),
        (NewBinding, {"platform": "web", "channel": "a b"}, "channel: expected an id without blanks"),
        (NewBinding, {"platform": "web", "channel": "a", "permission": "some"}, "permission: expected 'full'"),
        (NewBinding, {"platform": "web", "channel": "a\0"}, "channel: expected only visible characters"),
        (BindingChange, {"channel": "b"}, "channel: unknown field"),
        (NewClient, {"name": ""}, "name: expected 1 to 64 characters"),
        (NewClient, {"name": "Acme", "slug": "Acme"}, "slug: expected a slug, or nothing"),
    ],
)
def test_bindings_and_clients_have_rules_too(shape: Any, fields: Any, said: str) -> None:
    with pytest.raises(InvalidEdit, match=said):
        read(shape, fields)


# What counts as asked for


def test_only_what_is_given_changes() -> None:
    change = read(AgentChange, {"systemPrompt": "Be kind.", "tools": None, "version": 3, "force": True})
    assert change.given_fields == {"system_prompt", "tools"}
    after = apply_change(WHOLE, change)
    assert {one.field for one in diff_fields(WHOLE, after)} == {"systemPrompt", "tools"}
    assert (after.system_prompt, after.tools, after.role) == ("Be kind.", None, "coder")


def test_no_client_may_be_said_in_two_ways() -> None:
    assert apply_change(WHOLE, read(AgentChange, {"client": None})).client == ""
    assert apply_change(WHOLE, read(AgentChange, {"client": ""})).client == ""


CONDUCTS = {"role": "conductor"}


@pytest.mark.parametrize(
    ("before", "after", "others", "alone"),
    [
        (CONDUCTS, {**CONDUCTS, "status": "archived"}, 0, True),
        (CONDUCTS, {"role": "assistant"}, 0, True),
        (CONDUCTS, {**CONDUCTS, "status": "archived"}, 1, False),
        (CONDUCTS, {**CONDUCTS, "status": "paused"}, 0, False),
        (CONDUCTS, CONDUCTS, 0, False),
        ({**CONDUCTS, "status": "paused"}, {**CONDUCTS, "status": "archived"}, 0, False),
        ({"role": "assistant"}, {"status": "archived"}, 0, False),
    ],
)
def test_the_only_conductor_is_one_that_nobody_replaces(before: Any, after: Any, others: int, alone: bool) -> None:
    fields = AgentFields.model_validate(after)
    row = agent(**{**before, "status": AgentStatus(before.get("status", "active"))})
    assert removes_last_conductor(row, fields, others) is alone


# Versions


def test_a_row_and_a_snapshot_keep_everything_that_can_be_edited() -> None:
    row = agent()
    write_fields(row, WHOLE, 7)
    assert agent_fields(row, "Acme") == WHOLE
    assert row.client_id == 7
    kept = AgentVersion(agent_id=1, version=1, at=NOW, actor="operator", snapshot=WHOLE.model_dump_json())
    assert version_fields(kept) == WHOLE


def test_a_difference_names_the_field_as_in_json_with_both_values() -> None:
    after = WHOLE.model_copy(update={"tools": ("search",), "daily_budget_usd": None})
    assert [(one.field, one.before, one.after) for one in diff_fields(WHOLE, after)] == [
        ("tools", ["calculate", "search"], ["search"]),
        ("dailyBudgetUsd", 0, None),
    ]
    assert diff_fields(WHOLE, WHOLE) == ()


def test_the_first_version_differs_from_nothing_in_every_field() -> None:
    first = diff_fields(None, WHOLE)
    assert len(first) == len(AgentFields.model_fields)
    assert {one.before for one in first} == {None}


def test_what_an_earlier_release_let_people_write_is_read_all_the_same() -> None:
    assert agent_fields(agent(description="x" * 5_000), "").description == "x" * 5_000
