"""Requests in the chat format, without the library that sends them."""

import json
from typing import Any

import pytest

from maestro.domain.llm.prompts import LLMRequest, PromptMessage, Role, ToolCall
from maestro.llm.chat_format import ANSWER_NOW, chat_messages, offer_tools
from tests.support.llm_requests import SAID, SEARCH, SYSTEM, request_of

CALL = ToolCall(id="call_1_0", name="web_search", arguments='{"query": "SOL"}')
ASKED = PromptMessage(role=Role.ASSISTANT, content="", tool_calls=(CALL,))
TOLD = PromptMessage(role=Role.TOOL, content="up", call_id=CALL.id, tool=CALL.name)


def request(*more: PromptMessage, **fields: object) -> LLMRequest:
    asked = request_of().model_copy(update={"tools": (SEARCH,), **fields})
    return asked.model_copy(update={"messages": (*asked.messages, *more)})


def sent(provider: str, asked: LLMRequest) -> list[dict[str, Any]]:
    return chat_messages(provider, asked, [()] * len(asked.messages))


def test_tool_turns() -> None:
    function = {"name": "web_search", "arguments": '{"query": "SOL"}'}
    assert sent("openai", request(ASKED, TOLD)) == [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": SAID},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1_0", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1_0", "content": "up"},
    ]


def test_the_definition_of_a_tool() -> None:
    [definition] = offer_tools("openai", request())["tools"]
    assert definition["type"] == "function"
    assert definition["function"]["name"] == SEARCH.name
    assert definition["function"]["description"] == SEARCH.description
    assert definition["function"]["parameters"] == json.loads(SEARCH.parameters)


@pytest.mark.parametrize(
    ("provider", "final", "names"),
    [
        ("openai", False, ["tools"]),
        ("openai", True, ["tools", "tool_choice"]),
        ("ollama", False, ["tools"]),
        ("ollama", True, []),
    ],
)
def test_what_is_offered(provider: str, final: bool, names: list[str]) -> None:
    assert list(offer_tools(provider, request(final=final))) == names
    assert offer_tools(provider, request(tools=(), final=final)) == {}


@pytest.mark.parametrize(
    ("provider", "fields", "told"),
    [
        ("ollama", {"final": True}, True),
        ("ollama", {"final": False}, False),
        ("ollama", {"final": True, "tools": ()}, False),
        ("anthropic", {"final": True}, False),
    ],
)
def test_only_who_cannot_be_forbidden_tools_is_asked_in_words(
    provider: str, fields: dict[str, object], told: bool
) -> None:
    assert str(sent(provider, request(**fields))[0]["content"]).endswith(ANSWER_NOW) is told


def test_an_empty_turn_of_the_assistant_is_sent_only_with_tool_calls() -> None:
    silent = PromptMessage(role=Role.ASSISTANT, content=" ")
    assert [turn["role"] for turn in sent("openai", request(silent, ASKED, TOLD))] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ('{"query": "SOL"}', {"query": "SOL"}),
        ('{"query": "SOL', {"unreadable": '{"query": "SOL'}),
        ('["SOL"]', {"unreadable": '["SOL"]'}),
        ("null", {"unreadable": "null"}),
        ("", {"unreadable": ""}),
    ],
)
def test_arguments_are_an_object_that_any_provider_can_read(arguments: str, passed: dict[str, str]) -> None:
    asked = ASKED.model_copy(update={"tool_calls": (CALL.model_copy(update={"arguments": arguments}),)})
    [call] = sent("openai", request(asked, TOLD))[2]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == passed


@pytest.mark.parametrize(
    ("name", "passed"),
    [("web_search", "web_search"), ("search it!", "search_it_"), ("", "unknown"), ("ä" * 99, "_" * 64)],
)
def test_names_are_such_as_providers_accept(name: str, passed: str) -> None:
    asked = ASKED.model_copy(update={"tool_calls": (CALL.model_copy(update={"name": name}),)})
    [call] = sent("openai", request(asked, TOLD))[2]["tool_calls"]
    assert call["function"]["name"] == passed


def test_the_end_of_what_stays_the_same_has_a_mark_of_its_own() -> None:
    system = PromptMessage(role=Role.SYSTEM, content="You are Ada.\n\nToday is Monday.", stable=12, cache=True)
    marked = request().model_copy(update={"messages": (system, PromptMessage(role=Role.USER, content="hello"))})
    mark = {"cache_control": {"type": "ephemeral"}}
    [beginning, rest] = sent("anthropic", marked)[0]["content"]
    assert beginning == {"type": "text", "text": "You are Ada.", **mark}
    assert rest == {"type": "text", "text": "\n\nToday is Monday.", **mark}
    for provider in ("openai", "openrouter", "gemini", "ollama"):
        assert sent(provider, marked)[0]["content"] == system.content
    unmarked = marked.model_copy(update={"messages": (system.model_copy(update={"cache": False}),)})
    assert sent("anthropic", unmarked)[0]["content"] == system.content


def test_marks_are_for_anthropic_alone() -> None:
    marked = request(ASKED, TOLD.model_copy(update={"cache": True}))
    assert sent("anthropic", marked)[3]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in str(
        [sent(provider, marked) for provider in ("openai", "openrouter", "gemini", "ollama")]
    )
