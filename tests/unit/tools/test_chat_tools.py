"""The tools of the chat for our own agents: who has them, and that a post is made once and never with a secret."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from maestro.domain.agent_chat import ARCHITECT
from maestro.domain.llm.prompts import ToolCall
from maestro.domain.tools import ToolState
from maestro.tools.base import ToolCaller
from maestro.tools.chat import ChatGetNew, ChatPost
from maestro.tools.registry import ParsedToolCall, ToolCallResult, ToolRegistry, parse_call, prepare_call, run_in_store
from tests.support.job_rows import JobRows
from tests.support.outside import MOST_CHARS, SECRET, add_agent, add_architect, chat_of
from tests.support.tool_agents import agent_with

NAMES = ["chat_get_new", "chat_post"]


@pytest.fixture
def rows(tmp_path: Path) -> JobRows:
    return JobRows.at(tmp_path)


def tools_of(rows: JobRows) -> ToolRegistry:
    return ToolRegistry([], [], chat=[ChatPost(chat_of(rows.store)), ChatGetNew()])


def call(rows: JobRows, name: str, arguments: str = "{}", slug: str = "ada") -> ToolCallResult:
    """Call a tool as the activity does."""
    with rows.store.view() as tx:
        agent = tx.agents.get_agent_by_slug(slug)
    wanted = parse_call(tools_of(rows), ToolCall(id="c", name=name, arguments=arguments), agent)
    if isinstance(wanted, ToolCallResult):
        return wanted
    caller = ToolCaller("job", agent.id or 0, 1, Path())
    ready = prepare_call(wanted, caller)
    if isinstance(ready, ToolCallResult):
        return ready
    assert isinstance(ready.tool, ChatPost | ChatGetNew)
    with rows.store.begin() as tx:
        return run_in_store(ready.tool, tx, ready.arguments, caller)


def post(rows: JobRows, text: str, slug: str = "ada") -> ToolCallResult:
    return call(rows, "chat_post", json.dumps({"text": text}), slug)


def unread(rows: JobRows, slug: str) -> Any:
    return json.loads(call(rows, "chat_get_new", slug=slug).text)


def kept(rows: JobRows) -> list[tuple[str, str]]:
    with rows.store.view() as tx:
        return [(message.author, message.text) for message in tx.chat.list_posts()]


@pytest.mark.parametrize("listed", [None, [], ["calculate"], ["chat_post"]])
def test_who_takes_part_has_them_whatever_they_list(rows: JobRows, listed: Sequence[str] | None) -> None:
    assert [spec.name for spec in tools_of(rows).list_tools(agent_with(listed))] == NAMES


@pytest.mark.parametrize("listed", [None, NAMES])
def test_an_architect_has_none_of_them_even_if_it_lists_them(rows: JobRows, listed: Sequence[str] | None) -> None:
    architect = agent_with(listed, role=ARCHITECT)
    assert tools_of(rows).list_tools(architect) == ()
    asked = ToolCall(id="c", name="chat_post", arguments='{"text": "x"}')
    assert parse_call(tools_of(rows), asked, architect) == ToolCallResult(
        "The tool chat_post does not exist. You can call: none.", state=ToolState.FAILED
    )


def test_a_post_is_by_the_agent_that_calls(rows: JobRows) -> None:
    add_agent(rows, "coder-1")
    assert post(rows, "hello", "coder-1") == ToolCallResult('{"id":1,"success":true}')
    assert kept(rows) == [("@coder-1", "hello")]
    said = call(rows, "chat_post", '{"text": "x", "author": "@human"}')
    assert said.state is ToolState.FAILED
    assert "author" in said.text
    assert len(kept(rows)) == 1


def test_secrets_are_out_and_the_text_is_cut_before_anything_is_kept(rows: JobRows) -> None:
    post(rows, f"the key is {SECRET}.")
    post(rows, "x" * 1000)
    (_, redacted), (_, cut) = kept(rows)
    assert redacted == "the key is [redacted]. (Note: content redacted by scanner)"
    assert (len(cut), cut.endswith(" … [truncated]")) == (MOST_CHARS, True)


def test_the_scan_holds_up_nobody_who_writes(rows: JobRows) -> None:
    """Scanning may take as long as it is given: it happens while no transaction is open."""
    tool = ChatPost(chat_of(rows.store))
    ready = prepare_call(ParsedToolCall(tool, {"text": SECRET}), ToolCaller("job", 1, 1, Path()))
    assert ready == ParsedToolCall(tool, {"text": "[redacted] (Note: content redacted by scanner)"})
    assert kept(rows) == []


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_post_is_refused(rows: JobRows, text: str) -> None:
    assert post(rows, text).state is ToolState.FAILED
    assert kept(rows) == []


def test_half_a_character_and_a_nul_do_not_stop_a_post(rows: JobRows) -> None:
    assert call(rows, "chat_post", '{"text": "a\\u0000b\\ud800"}') == ToolCallResult('{"id":1,"success":true}')
    assert kept(rows) == [("@ada", "ab\ufffd")]


def test_reading_moves_no_cursor_and_includes_own_posts(rows: JobRows) -> None:
    add_agent(rows, "bob")
    post(rows, "one")
    post(rows, "two", "bob")
    first = unread(rows, "ada")
    assert [(one["id"], one["author"], one["text"]) for one in first["messages"]] == [
        (1, "@ada", "one"),
        (2, "@bob", "two"),
    ]
    assert first["newPointer"] == 2
    assert unread(rows, "ada") == first
    with rows.store.begin() as tx:
        tx.chat.mark_read("ada", 1)
    assert [one["id"] for one in unread(rows, "ada")["messages"]] == [2]
    with rows.store.begin() as tx:
        tx.chat.mark_read("ada", 2)
    assert unread(rows, "ada") == {"messages": [], "newPointer": 2}


def test_results_fit_their_schemas_and_are_the_same_bytes_each_time(rows: JobRows) -> None:
    Draft202012Validator(json.loads(ChatPost.output)).validate(json.loads(post(rows, "hello").text))
    told = [call(rows, "chat_get_new").text for _ in range(2)]
    Draft202012Validator(json.loads(ChatGetNew.output)).validate(json.loads(told[0]))
    assert told[0] == told[1]
    assert '{"author":"@ada","id":1,"text":"hello","ts":"2026-11-20T08:00:00.000Z"}' in told[0]


def test_every_tool_and_argument_is_explained(rows: JobRows) -> None:
    for spec in tools_of(rows).list_tools(agent_with()):
        assert len(spec.description) > 60
        assert spec.parameters.count('"description"') == spec.parameters.count('"type"') - 1


def test_an_architect_that_had_a_tool_in_its_hands_posts_nothing(rows: JobRows) -> None:
    """Its role may have changed between the question and the call."""
    add_architect(rows)
    with rows.store.begin() as tx:
        caller = ToolCaller("job", tx.agents.get_agent_by_slug("arch").id or 0, 1, Path())
        said = run_in_store(ChatPost(chat_of(rows.store)), tx, {"text": "x"}, caller)
    assert said.state is ToolState.FAILED
    assert "takes no part" in said.text
