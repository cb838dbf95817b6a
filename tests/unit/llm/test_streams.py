"""What rare pieces of streams become: the whole that the provider would have sent at once."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from maestro.llm.streams import (
    AnthropicAnswer,
    GeminiAnswer,
    OllamaAnswer,
    OpenAIAnswer,
    StreamBroken,
    StreamedAnswer,
    assemble_answer,
    stream_format,
)
from maestro.llm.wire import current_listener, stream_to

Json = dict[str, Any]


def whole(answer: StreamedAnswer, *events: Json) -> Json:
    for event in events:
        answer.add_event(event)
    assert answer.complete
    return answer.assemble_body()


async def split(text: str, size: int) -> AsyncIterator[bytes]:
    data = text.encode()
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
async def test_a_stream_may_be_cut_anywhere(size: int, end: str) -> None:
    said: list[str] = []
    line = '{"message": {"content": "ä\u2028\x85"}, "done": %s}'
    text = f": a comment{end}{line % 'false'}{end}event: x{end}data: {line % 'true'}"
    body = await assemble_answer(split(text, size), OllamaAnswer(), said.append)
    assert said == ["ä\u2028\x85"] * 2
    assert body["message"]["content"] == "ä\u2028\x85" * 2


async def test_an_error_in_a_stream_is_no_answer() -> None:
    with pytest.raises(StreamBroken, match="reported an error"):
        await assemble_answer(split('data: {"error": {"message": "x"}, "choices": []}\n', 9), OpenAIAnswer(), print)


def test_the_usage_comes_after_the_end_and_counts() -> None:
    chunk = {"id": "1", "model": "m", "choices": [{"delta": {"content": "a"}, "finish_reason": "length"}]}
    body = whole(OpenAIAnswer(), chunk, {"id": "1", "choices": [], "usage": {"prompt_tokens": 3}})
    assert body["usage"] == {"prompt_tokens": 3}
    assert body["choices"][0]["finish_reason"] == "length"


def test_calls_without_numbers_stand_in_their_order() -> None:
    def call(name: str) -> Json:
        return {"delta": {"tool_calls": [{"id": name, "function": {"name": name, "arguments": "{}"}}]}}

    body = whole(OpenAIAnswer(), {"choices": [call("a")]}, {"choices": [{**call("b"), "finish_reason": "tool_calls"}]})
    assert [one["function"]["name"] for one in body["choices"][0]["message"]["tool_calls"]] == ["a", "b"]


def test_calls_of_one_number_are_told_apart_by_their_ids() -> None:
    def call(name: str, **told: Any) -> Json:
        return {"delta": {"tool_calls": [{"index": 0, "function": {"name": name, "arguments": "{}"}, **told}]}}

    events = {"choices": [call("a", id="1")]}, {"choices": [{**call("b", id="2"), "finish_reason": "tool_calls"}]}
    calls = whole(OpenAIAnswer(), *events)["choices"][0]["message"]["tool_calls"]
    assert [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in calls] == [
        ("1", "a", "{}"),
        ("2", "b", "{}"),
    ]


def test_a_call_whose_id_changes_from_piece_to_piece_stays_one() -> None:
    def piece(called: str, **function: str) -> Json:
        return {"tool_calls": [{"index": 0, "id": called, "function": function}]}

    pieces = piece("1", name="a", arguments="{"), piece("2", arguments="}")
    events = [{"choices": [{"delta": one, "finish_reason": "tool_calls"}]} for one in pieces]
    (call,) = whole(OpenAIAnswer(), *events)["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "a", "arguments": "{}"}


def test_what_a_model_thinks_is_not_heard_and_stays() -> None:
    answer = AnthropicAnswer()
    events: list[Json] = [
        {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 2}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"n": 1}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "yes"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5, "other": None}},
    ]
    assert "".join(map(answer.add_event, events)) == "yes"
    assert not answer.complete
    assert answer.add_event({"type": "message_stop"}) == ""
    body = answer.assemble_body()
    assert body["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "yes", "citations": [{"n": 1}]},
    ]
    assert body["usage"] == {"input_tokens": 2, "output_tokens": 5}


def test_a_piece_that_is_no_text_breaks_the_stream_at_once() -> None:
    """Another block with the same number would otherwise replace what is wrong, and the rest count as an answer."""
    answer = AnthropicAnswer()
    answer.add_event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    with pytest.raises(TypeError):
        answer.add_event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": {"a": 1}}})


def test_arguments_that_break_off_are_put_into_an_object() -> None:
    use = {"type": "tool_use", "id": "1", "name": "n", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"a": '}
    body = whole(
        AnthropicAnswer(),
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": use},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "message_stop"},
    )
    assert body["content"][0]["input"] == {"unreadable": '{"a": '}


def test_thoughts_and_signatures_of_gemini_stay_apart() -> None:
    answer = GeminiAnswer()

    def parts(*found: Json, **more: str) -> Json:
        return {"candidates": [{"content": {"parts": list(found)}, **more}]}

    thought, more = {"text": "a", "thought": True}, {"text": "b", "thought": True}
    heard = answer.add_event(parts(thought, more)) + answer.add_event(parts({"text": "c"}, {"text": "d"}))
    heard += answer.add_event(parts({"text": "e", "thoughtSignature": "s"}, finishReason="STOP"))
    assert heard == "cde"
    [candidate] = answer.assemble_body()["candidates"]
    assert candidate["content"]["parts"] == [
        {"text": "ab", "thought": True},
        {"text": "cd"},
        {"text": "e", "thoughtSignature": "s"},
    ]


def test_a_prompt_that_google_refuses_is_a_whole_answer() -> None:
    refusal = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 1}}
    assert whole(GeminiAnswer(), refusal) == refusal


def test_only_calls_that_can_be_streamed_are_known() -> None:
    assert [stream_format(path) is not None for path in ("/v1/chat/completions", "/v1/messages", "/x/api/chat")] == [
        True
    ] * 3
    assert stream_format("/v1/audio/transcriptions") is None


def test_nobody_hears_outside() -> None:
    assert current_listener() is None
    with stream_to(print):
        assert current_listener() is print
    assert current_listener() is None
