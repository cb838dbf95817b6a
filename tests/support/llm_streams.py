"""How four model providers send an answer piece by piece, as the test server does when it is asked to.

Each wire cuts the whole answer that it would send at once; what a provider says of usage and of the end comes where it
says it: an answer whose last pieces are missing has neither.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping

from tests.support.llm_asked import Json

PIECE = re.compile(r"\s*\S{1,12}|\s+")
"""What a text is cut into: words, and long ones into pieces."""


def wants_stream(path: str, body: Json) -> bool:
    """Tell whether a request asks for its answer piece by piece; Google's says so in its address."""
    return ":streamGenerateContent" in path or body.get("stream") is True


def pieces_of(wire: str, answer: Json, body: Json) -> list[bytes]:
    """Cut an answer into what is sent, one piece after the other."""
    return [piece.encode() for piece in _STREAMS[wire](answer, body)]


def content_type_of(wire: str) -> str:
    """Return what a stream of this wire calls itself."""
    return "application/x-ndjson" if wire == "ollama" else "text/event-stream"


def trouble_of(wire: str) -> bytes:
    """Return how a provider tells in the middle of a stream that something broke."""
    said = {"message": "PROMPT-SECRET-17 Overloaded"}
    match wire:
        case "anthropic":
            return _event({"type": "error", "error": {"type": "overloaded_error", **said}}, "error").encode()
        case "gemini":
            error = json.dumps({"error": {"code": 503, "status": "UNAVAILABLE", **said}})
            return f"data: {error}\r\n\r\n".encode()
        case "ollama":
            return _line({"error": said["message"]}).encode()
        case _:
            return _event({"error": {"type": "server_error", "code": 500, **said}}).encode()


def _words(text: str) -> list[str]:
    return PIECE.findall(text)


def _event(data: Json, name: str = "") -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"


def _openai(answer: Json, body: Json) -> Iterator[str]:
    head = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    [choice] = answer["choices"]

    def chunk(delta: Json, finish_reason: str | None = None) -> str:
        return _event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})

    yield chunk({"role": "assistant", "content": ""})
    for word in _words(choice["message"]["content"] or ""):
        yield chunk({"content": word})
    for index, call in enumerate(choice["message"].get("tool_calls", ())):
        named = call | {"index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield chunk({"tool_calls": [named]})
        for word in _words(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": word}}]})
    yield chunk({}, choice["finish_reason"])
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _event(head | {"choices": [], "usage": answer["usage"]})
    yield "data: [DONE]\n\n"


def _anthropic(answer: Json, _: Json) -> Iterator[str]:
    def event(kind: str, **fields: object) -> str:
        return _event({"type": kind, **fields}, kind)

    usage = answer["usage"]
    empty = answer | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    yield event("message_start", message=empty)
    yield event("ping")
    for index, block in enumerate(answer["content"]):
        if block["type"] == "text":
            begin, deltas = block | {"text": ""}, [{"type": "text_delta", "text": w} for w in _words(block["text"])]
        else:
            arguments = _words(json.dumps(block["input"]))
            begin, deltas = (
                block | {"input": {}},
                [{"type": "input_json_delta", "partial_json": part} for part in ("", *arguments)],
            )
        yield event("content_block_start", index=index, content_block=begin)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    ending = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=ending, usage={"output_tokens": usage["output_tokens"]})
    yield event("message_stop")


def _gemini(answer: Json, _: Json) -> Iterator[str]:
    [candidate] = answer["candidates"]
    usage, model = answer["usageMetadata"], answer["modelVersion"]
    parts = [
        piece
        for part in candidate["content"]["parts"]
        for piece in ([{"text": word} for word in _words(part["text"])] if "text" in part else [part])
    ] or [{"text": ""}]
    for number, part in enumerate(parts, 1):
        last = {"finishReason": candidate["finishReason"]} if number == len(parts) else {}
        told = usage if last else {name: usage[name] for name in usage if name != "candidatesTokenCount"}
        piece = {"content": {"parts": [part], "role": "model"}, "index": 0, **last}
        data = json.dumps({"candidates": [piece], "usageMetadata": told, "modelVersion": model})
        yield f"data: {data}\r\n\r\n"


def _ollama(answer: Json, _: Json) -> Iterator[str]:
    head = {"model": answer["model"], "created_at": answer["created_at"]}
    message = answer["message"]
    for word in _words(message["content"]):
        yield _line(head | {"message": {"role": "assistant", "content": word}, "done": False})
    if message.get("tool_calls"):
        calls = {"role": "assistant", "content": "", "tool_calls": message["tool_calls"]}
        yield _line(head | {"message": calls, "done": False})
    yield _line(answer | {"message": {"role": "assistant", "content": ""}})


def _line(data: Json) -> str:
    return json.dumps(data) + "\n"


_STREAMS: Mapping[str, Callable[[Json, Json], Iterator[str]]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
}
