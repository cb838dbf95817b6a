"""Tools on each provider's wire: what is offered, what a model calls, what it is told of the results."""

import json
from collections.abc import Sequence

import pytest

from maestro.domain.llm.prompts import (
    CallKey,
    ImageRef,
    LLMRequest,
    LLMResponse,
    PromptMessage,
    Role,
    ToolCall,
    ToolSpec,
)
from maestro.llm.chat_format import ANSWER_NOW
from maestro.llm.litellm_client import LiteLLMClient
from maestro.llm.protocols import LLMClient
from tests.support.llm_requests import SAID, SEARCH, SYSTEM, TIME, account_at, request_of
from tests.support.llm_server import LLMServer

# One worker imports the library once for all of these.
pytestmark = pytest.mark.xdist_group("litellm")

UNREADABLE = '{"query": "SOL'
ODD = ToolSpec(
    name="odd",
    description="Takes what third parties ask for.",
    parameters=json.dumps(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "additionalProperties": False,
            "$defs": {"Place": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "properties": {
                "place": {"$ref": "#/$defs/Place"},
                "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                "kind": {"type": ["string", "null"], "enum": ["a", "b", None]},
            },
        }
    ),
)


def asking(number: int = 1, *, tools: Sequence[ToolSpec] = (SEARCH, TIME), final: bool = False) -> LLMRequest:
    """The request of a call that may use tools."""
    update = {"tools": tuple(tools), "final": final, "key": CallKey(job_id="message-1", number=number)}
    return request_of().model_copy(update=update)


def after(request: LLMRequest, calls: Sequence[ToolCall], results: Sequence[str], said: str = "") -> LLMRequest:
    """A request with one more round of tools in its history."""
    turns = [
        PromptMessage(role=Role.TOOL, content=result, call_id=call.id, tool=call.name)
        for call, result in zip(calls, results, strict=True)
    ]
    asked = PromptMessage(role=Role.ASSISTANT, content=said, tool_calls=tuple(calls))
    return request.model_copy(update={"messages": (*request.messages, asked, *turns)})


def one(call_id: str, name: str = "web_search", arguments: str = '{"query": "SOL"}') -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def told(response: LLMResponse) -> list[tuple[str, str, object]]:
    return [(call.id, call.name, json.loads(call.arguments)) for call in response.tool_calls]


async def test_tools_are_offered_with_what_they_take(client: LLMClient, server: LLMServer) -> None:
    await client.complete(asking())
    [request] = server.requests
    assert request.tools == ["web_search", "get_time"]
    assert request.tool_choice == ""
    assert all(text in str(request.body) for text in ("Search the web.", "query", "required"))


async def test_without_tools_nothing_is_said_of_them(client: LLMClient, server: LLMServer) -> None:
    await client.complete(asking(tools=(), final=True))
    [request] = server.requests
    assert (request.tools, request.tool_choice, request.texts) == ([], "", [SYSTEM, SAID])
    assert "tool" not in str(request.body).lower()


async def test_schemas_of_third_parties_pass(client: LLMClient, server: LLMServer) -> None:
    await client.complete(asking(tools=(ODD,)))
    assert server.requests[0].tools == ["odd"]


async def test_a_call_comes_back_under_an_id_of_our_own(client: LLMClient, server: LLMServer) -> None:
    server.script(calls=[("web_search", {"query": "SOL"})])
    response = await client.complete(asking(number=3))
    assert told(response) == [("call_3_0", "web_search", {"query": "SOL"})]
    assert response.content == ""
    assert response.finish_reason == "tool_calls"


async def test_parallel_calls_keep_their_order_and_the_text_beside_them(client: LLMClient, server: LLMServer) -> None:
    server.script(calls=[("web_search", {"query": "SOL"}), ("get_time", {})], reply="Let me look.")
    response = await client.complete(asking())
    assert told(response) == [("call_1_0", "web_search", {"query": "SOL"}), ("call_1_1", "get_time", {})]
    assert response.content == "Let me look."


async def test_arguments_that_are_no_json_are_handed_on(client: LLMClient, server: LLMServer, provider: str) -> None:
    server.script(calls=[("web_search", UNREADABLE)])
    [call] = (await client.complete(asking())).tool_calls
    # On these wires arguments are values, so that a text arrives as one.
    as_a_value = provider in ("anthropic", "gemini")
    assert call.arguments == (json.dumps(UNREADABLE) if as_a_value else UNREADABLE)


async def test_results_go_to_the_calls_they_belong_to(client: LLMClient, server: LLMServer, provider: str) -> None:
    calls = [one("call_1_0"), one("call_1_1", arguments='{"query": "BTC"}'), one("call_1_2", "get_time", "{}")]
    await client.complete(after(asking(2), calls, ["up", "down", "noon"], "Let me look."))
    [request] = server.requests
    name = "Result of {}:\n" if provider == "ollama" else ""
    assert request.results == [
        ("web_search", name.format("web_search") + "up"),
        ("web_search", name.format("web_search") + "down"),
        ("get_time", name.format("get_time") + "noon"),
    ]
    [asked] = [turn for turn in request.asked.turns if turn.calls]
    assert [(tool, json.loads(arguments)) for tool, arguments in asked.calls] == [
        ("web_search", {"query": "SOL"}),
        ("web_search", {"query": "BTC"}),
        ("get_time", {}),
    ]
    assert asked.text == "Let me look."
    assert request.rounds == 1


async def test_several_rounds_go_back_and_forth(client: LLMClient, server: LLMServer) -> None:
    first = after(asking(2), [one("call_1_0")], ["up"])
    await client.complete(after(first, [one("call_2_0"), one("call_2_1", "get_time", "{}")], ["down", "noon"]))
    [request] = server.requests
    assert [tool for tool, _ in request.results] == ["web_search", "web_search", "get_time"]
    assert request.rounds == 2
    assert request.last_user == SAID


async def test_a_final_call_forbids_tools(client: LLMClient, server: LLMServer, provider: str) -> None:
    await client.complete(after(asking(2, final=True), [one("call_1_0")], ["up"]))
    [request] = server.requests
    if provider == "ollama":
        assert (request.tools, request.texts[0]) == ([], f"{SYSTEM}\n\n{ANSWER_NOW}")
    else:
        assert (request.tools, request.tool_choice) == (["web_search", "get_time"], "none")
        assert request.texts[0] == SYSTEM
    assert len(request.results) == 1


async def test_a_model_that_calls_tools_all_the_same_is_not_heeded(client: LLMClient, server: LLMServer) -> None:
    server.script(calls=[("web_search", {"query": "SOL"})], reply="Well.")
    response = await client.complete(asking(final=True))
    assert (response.content, response.tool_calls) == ("Well.", ())


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("web_search", UNREADABLE), ("web_search", '["SOL"]'), ("web_search", ""), ("search the web!", "{}"), ("", "{}")],
)
async def test_what_a_model_made_up_does_not_break_the_next_call(
    client: LLMClient, server: LLMServer, name: str, arguments: str
) -> None:
    response = await client.complete(after(asking(2), [one("call_1_0", name, arguments)], ["no such thing"]))
    assert response.content == f"answer to: {SAID}"
    [[(sent, given)]] = [turn.calls for turn in server.requests[0].asked.turns if turn.calls]
    assert sent.replace("_", "").isalnum()
    assert isinstance(json.loads(given), dict)
    assert name != "web_search" or not arguments or "SOL" in given


@pytest.mark.parametrize("result", ["", "data:image/png;base64,AAAA", '{"price": 1}', '["a"]', "{broken", "  "])
async def test_any_result_is_passed_on_as_text(client: LLMClient, server: LLMServer, result: str) -> None:
    await client.complete(after(asking(2), [one("call_1_0")], [result]))
    [request] = server.requests
    [(_, text)] = request.results
    assert result in text
    assert request.images == []


async def test_nothing_of_a_provider_goes_to_another(litellm: LiteLLMClient, server: LLMServer) -> None:
    server.script(calls=[("web_search", {"query": "SOL"})])
    first = await litellm.ask(account_at(server, "gemini"), asking())
    server.reset()
    for provider in ("anthropic", "openai", "ollama"):
        await litellm.ask(account_at(server, provider), after(asking(2), first.tool_calls, ["up"]))
    assert all("signature" not in str(request.body).lower() for request in server.requests)
    assert [request.results[0][0] for request in server.requests] == ["web_search"] * 3


async def test_a_gemini_that_wants_signatures_is_told_there_are_none(litellm: LiteLLMClient, server: LLMServer) -> None:
    request = after(asking(2), [one("call_1_0")], ["up"])
    request = request.model_copy(update={"model": "gemini-3-flash-preview"})
    await litellm.ask(account_at(server, "gemini"), request)
    # Base64 of skip_thought_signature_validator, which Google documents for calls that it has not made itself.
    assert "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=" in str(server.requests[0].body)


async def test_a_gemini_that_the_library_does_not_know_may_use_tools(litellm: LiteLLMClient, server: LLMServer) -> None:
    request = asking(final=True).model_copy(update={"model": "gemini-99-flash"})
    await litellm.ask(account_at(server, "gemini"), request)
    assert (server.requests[0].tools, server.requests[0].tool_choice) == (["web_search", "get_time"], "none")


async def test_a_call_without_a_name_is_handed_on(litellm: LiteLLMClient, server: LLMServer) -> None:
    server.script(calls=[("", {})])
    response = await litellm.ask(account_at(server, "openai"), asking())
    assert [call.name for call in response.tool_calls] == [""]


async def test_pictures_of_tools_reach_the_model_behind_the_results(
    client: LLMClient, server: LLMServer, provider: str
) -> None:
    """In the result itself where the provider takes that, else in a message after all results of the round."""
    request = after(asking(2), [one("call_1_0"), one("call_1_1")], ["first", "second"])
    *before, first, second = request.messages
    pictures = {"images": (ImageRef(digest="d", content_type="image/png"),)}
    said = PromptMessage(role=Role.USER, content="go on")
    shown = (*before, first.model_copy(update=pictures), second, said)
    await client.complete(request.model_copy(update={"messages": shown}))
    [asked] = server.requests
    assert [text.splitlines()[-1] for _, text in asked.results] == ["first", "second"]
    assert len(asked.images) == 1
    if provider == "anthropic":
        [result] = [block for block in asked.body["messages"][-1]["content"] if block.get("tool_use_id") == "call_1_0"]
        assert [block["type"] for block in result["content"]] == ["text", "image"]
