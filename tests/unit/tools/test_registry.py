"""Which tools there are, who may call them, and what a model hears when it asks wrongly."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from jsonschema import SchemaError

from maestro.domain.llm.prompts import ToolSpec
from maestro.tools.base import Arguments, Tool, ToolCaller, ToolFailure, canonical_json, shorten_text, tool_spec
from maestro.tools.registry import ToolRegistry, check_parameters, parse_arguments
from tests.support.tool_agents import agent_with


@dataclass
class Named:
    """A tool with nothing but a name."""

    spec: ToolSpec
    idempotent: bool = True
    read_only: bool = True

    async def run(self, arguments: Arguments, caller: ToolCaller) -> str:
        return "done"


def named(name: str, description: str = "") -> Named:
    return Named(tool_spec(name, description, {}))


@dataclass
class Elsewhere:
    """A source whose tools come and go."""

    there: Sequence[Tool] = ()

    def tools(self) -> Sequence[Tool]:
        return self.there

    async def settled(self) -> None:
        self.there = [named("late")]

    async def serve(self) -> None:
        self.there = [named("served")]


def names(specs: Sequence[ToolSpec]) -> list[str]:
    return [spec.name for spec in specs]


def test_an_agent_that_lists_none_has_the_default_tools() -> None:
    tools = ToolRegistry([named("b"), named("a"), named("c")], default=["c", "a", "gone"])
    assert names(tools.list_tools(agent_with())) == ["a", "c"]
    assert names(tools.list_tools(agent_with(["b"]))) == ["b"]
    assert tools.list_tools(agent_with([])) == ()


def test_the_same_tools_are_the_same_bytes_in_any_order() -> None:
    one = ToolRegistry([named("b"), named("a")], default=["a", "b"])
    other = ToolRegistry([named("a"), named("b")], default=["b", "a"])
    assert [spec.model_dump_json() for spec in one.list_tools(agent_with())] == [
        spec.model_dump_json() for spec in other.list_tools(agent_with())
    ]
    assert canonical_json({"b": 1, "a": "ü"}) == '{"a":"ü","b":1}'


def test_a_tool_is_found_where_it_is_allowed() -> None:
    tools = ToolRegistry([named("a"), named("b")], default=["a"])
    assert tools.find_tool("a", agent_with()).spec.name == "a"
    assert tools.find_tool("b", agent_with(["b"])).spec.name == "b"


@pytest.mark.parametrize(
    ("name", "allowed", "reason"),
    [
        ("b", None, r"The tool b does not exist\. You can call: a\."),
        ("a", ["b"], r"The tool a does not exist\. You can call: b\."),
        ("x", [], r"You can call: none\."),
        ("away", ["away", "b"], r"The tool away is not available at the moment\. You can call: b\."),
        ("x" * 500, None, "The tool x{64} does not exist"),
    ],
)
def test_another_tool_is_a_failure_that_names_those_there_are(
    name: str, allowed: Sequence[str] | None, reason: str
) -> None:
    with pytest.raises(ToolFailure, match=reason):
        ToolRegistry([named("a"), named("b")], default=["a"]).find_tool(name, agent_with(allowed))


async def test_tools_from_elsewhere_come_and_go() -> None:
    source = Elsewhere()
    tools = ToolRegistry([named("a")], default=["a", "late"], source=source)
    assert names(tools.list_tools(agent_with())) == ["a"]
    await tools.wait_until_settled()
    assert names(tools.list_tools(agent_with())) == ["a", "late"]
    source.there = []
    with pytest.raises(ToolFailure, match="not available at the moment"):
        tools.find_tool("late", agent_with())


async def test_where_tools_come_from_is_looked_after_as_long_as_the_process_runs() -> None:
    source = Elsewhere()
    await ToolRegistry([], [], source).keep_sources_open()
    assert names([tool.spec for tool in source.there]) == ["served"]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await ToolRegistry([], []).keep_sources_open()


def test_nothing_from_elsewhere_replaces_a_tool_of_ours() -> None:
    tools = ToolRegistry([named("a", "ours")], default=["a"], source=Elsewhere([named("a", "theirs")]))
    assert [spec.description for spec in tools.list_tools(agent_with())] == ["ours"]


SPEC = tool_spec(
    "move",
    "Move something.",
    {"what": {"type": "string"}, "steps": {"type": "integer", "minimum": 1}, "how": {"enum": ["fast", "slow"]}},
    ["what"],
)


def test_arguments_are_read() -> None:
    assert parse_arguments(SPEC.name, SPEC.parameters, '{"what": "it", "steps": 2}') == {"what": "it", "steps": 2}
    assert (
        parse_arguments(named("a").spec.name, named("a").spec.parameters, "")
        == parse_arguments(named("a").spec.name, named("a").spec.parameters, " {} ")
        == {}
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"what": "SOL', "not valid JSON"),
        ("what", "not valid JSON"),
        ('{"what": "it", "steps": NaN}', "NaN is not a number in JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('["it"]', "must be one JSON object"),
        ('"it"', "must be one JSON object"),
        ("{}", "'what' is a required property"),
        ('{"what": 5}', "what: 5 is not of type 'string'"),
        ('{"what": "it", "steps": 0}', "steps: 0 is less than the minimum of 1"),
        ('{"what": "it", "how": "badly"}', r"how: 'badly' is not one of \['fast', 'slow'\]"),
        ('{"what": "it", "where": 1}', "'where' was unexpected"),
        (json.dumps({"what": "x" * 300_000}), "longer than 200,000 characters"),
    ],
)
def test_wrong_arguments_are_a_failure_that_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ToolFailure, match=reason):
        parse_arguments(SPEC.name, SPEC.parameters, text)


def test_the_failure_shows_what_would_be_right_and_is_not_long() -> None:
    with pytest.raises(ToolFailure) as failure:
        parse_arguments(
            SPEC.name, SPEC.parameters, json.dumps({"what": ["x" * 50_000] * 2, "steps": -1, "how": 1, "more": 1})
        )
    assert SPEC.parameters in str(failure.value)
    assert len(str(failure.value)) < 2000


def test_a_pattern_is_left_to_the_tool_that_wrote_it() -> None:
    """This one would take longer than anybody waits."""
    hostile = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}}
    spec = ToolSpec(name="match", description="Match.", parameters=json.dumps(hostile))
    assert parse_arguments(spec.name, spec.parameters, json.dumps({"text": "a" * 5_000 + "b"})) == {
        "text": "a" * 5_000 + "b"
    }


def test_a_schema_is_never_fetched_from_elsewhere() -> None:
    spec = ToolSpec(name="a", description="", parameters=canonical_json({"$ref": "http://127.0.0.1:9/schema.json"}))
    with pytest.raises(ToolFailure, match="cannot be checked"):
        parse_arguments(spec.name, spec.parameters, "{}")


@pytest.mark.parametrize("schema", [{"type": "no-such-type"}, {"properties": []}, {"required": "all"}])
def test_what_is_no_schema_is_found(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        check_parameters(schema)


def test_a_long_text_is_shortened_with_a_mark() -> None:
    assert shorten_text("abc", 3) == "abc"
    assert shorten_text("a" * 2000 + "b", 2000) == "a" * 2000 + "\n[... 1 more characters were left out]"


def test_half_a_surrogate_pair_in_arguments_reaches_no_tool() -> None:
    spec = tool_spec("t", "t", {"a": {"type": "array"}}, ["a"])
    assert parse_arguments(spec.name, spec.parameters, r'{"a": ["\ud83d", {"x\ud83d": "\u0000y", "n": 1}]}') == {
        "a": ["\ufffd", {"x\ufffd": "y", "n": 1}]
    }
