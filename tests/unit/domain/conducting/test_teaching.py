"""What agents are taught is what there is (docs/decisions.md: tags)."""

import re

import pytest

from maestro.domain.agents.edits import AgentFields
from maestro.domain.conducting.conductor import CONDUCTOR_PROMPT, add_conductor_prompt, escape_tags, tag_rules
from maestro.domain.conducting.directives import FIELDS
from maestro.domain.llm.models import estimate_tokens
from maestro.domain.memory.memory import FactCategory
from maestro.domain.tags.grammar import CONDUCTOR_TAGS, TagName, parse_answer

NAMES = re.compile(r"\b[A-Z]+_[A-Z]+\b|(?<=\[)[A-Z]+\b")


def named(text: str) -> set[str]:
    return set(NAMES.findall(text))


@pytest.mark.parametrize("text", [CONDUCTOR_PROMPT, tag_rules("conductor", delegates=True)])
def test_a_conductor_is_taught_exactly_the_tags_that_exist(text: str) -> None:
    assert named(text) == set(TagName)
    assert estimate_tokens(text) < 900


@pytest.mark.parametrize(("role", "delegates"), [("assistant", True), ("coder", False), ("conductor", False)])
def test_an_agent_is_taught_the_tags_that_it_may_use(role: str, delegates: bool) -> None:
    missing = set() if delegates else {TagName.DELEGATE}
    others = set(CONDUCTOR_TAGS) if role != "conductor" else set()
    assert named(tag_rules(role, delegates=delegates)) == set(TagName) - missing - others


def test_every_category_and_every_field_is_taught() -> None:
    text = tag_rules("conductor", delegates=True)
    for word in (*FactCategory, *(field for fields in FIELDS.values() for field in fields)):
        assert re.search(rf"\b{word}\b", text), word


def test_what_is_taught_can_be_read() -> None:
    [example] = [
        tag for tag in parse_answer(tag_rules("conductor", delegates=True)).tags if tag.body.startswith("slug:")
    ]
    assert example.complete
    assert parse_answer(escape_tags(CONDUCTOR_PROMPT)).tags == ()


@pytest.mark.parametrize(
    ("role", "prompt", "instructions"),
    [("conductor", "", CONDUCTOR_PROMPT), ("conductor", "My own.", "My own."), ("assistant", "", "")],
)
def test_a_new_conductor_without_instructions_is_told_what_it_is(role: str, prompt: str, instructions: str) -> None:
    assert add_conductor_prompt(AgentFields(role=role, system_prompt=prompt)).system_prompt == instructions
