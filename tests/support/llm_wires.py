"""The wire formats of four model providers, as the test server speaks them: what was asked, what is answered."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.llm_asked import Asked, Json, Turn, of_anthropic, of_chat, of_gemini, of_ollama

__all__ = ["INPUT_TOKENS", "OUTPUT_TOKENS", "Json", "Reply", "ToolCalls", "Wire"]

INPUT_TOKENS = 11
OUTPUT_TOKENS = 7


ToolCalls = Sequence[tuple[str, Any]]
"""Name and arguments of each tool call: a mapping, or a text that is sent as it is, also where it is no JSON."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says: a text, empty for nothing, the tools it calls, and what of the input was cached."""

    text: str
    calls: ToolCalls = ()
    cached: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class Wire:
    """One provider's format: what a request asks, and how answers and errors look."""

    name: str
    asked: Callable[[Json], Asked]
    answer: Callable[[str, Reply], Json]
    """(model, reply) to the body of a success; an empty text is what the provider sends for nothing."""
    error: Callable[[int, str], Json]
    """(HTTP status, message) to the body of a failure."""


def _openai_answer(model: str, reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text}
    if reply.calls:
        message["content"] = reply.text or None
        message["tool_calls"] = [
            {"id": f"call_{number}x", "type": "function", "function": {"name": name, "arguments": _as_text(arguments)}}
            for number, (name, arguments) in enumerate(reply.calls)
        ]
    usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS}
    details = {"prompt_tokens_details": {"cached_tokens": reply.cached}} if reply.cached else {}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if reply.calls else "stop"}],
        "usage": {**usage, "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS, **details},
    }


def _anthropic_answer(model: str, reply: Reply) -> Json:
    uses = [
        {"type": "tool_use", "id": f"toolu_{number}x", "name": name, "input": arguments}
        for number, (name, arguments) in enumerate(reply.calls)
    ]
    cache = {"cache_read_input_tokens": reply.cached, "cache_creation_input_tokens": reply.written}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [*([{"type": "text", "text": reply.text}] if reply.text else []), *uses],
        "stop_reason": "tool_use" if uses else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": INPUT_TOKENS - reply.cached - reply.written,
            "output_tokens": OUTPUT_TOKENS,
            **(cache if any(cache.values()) else {}),
        },
    }


def _gemini_answer(model: str, reply: Reply) -> Json:
    calls = [{"functionCall": {"name": name, "args": arguments}} for name, arguments in reply.calls]
    parts = [*([{"text": reply.text}] if reply.text else []), *calls]
    cache = {"cachedContentTokenCount": reply.cached} if reply.cached else {}
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": INPUT_TOKENS,
            "candidatesTokenCount": OUTPUT_TOKENS,
            "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
            **cache,
        },
        "modelVersion": model,
    }


def _ollama_answer(model: str, reply: Reply) -> Json:
    calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in reply.calls]
    return {
        "model": model,
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": reply.text, **({"tool_calls": calls} if calls else {})},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": INPUT_TOKENS,
        "eval_count": OUTPUT_TOKENS,
    }


def _as_text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _transcript(model: str, reply: Reply) -> Json:
    return {"text": reply.text}


_OPENAI_TYPES: Mapping[int, str] = {401: "invalid_request_error", 429: "rate_limit_exceeded"}
_ANTHROPIC_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_GEMINI_STATES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def _openai_error(status: int, message: str) -> Json:
    code = "invalid_api_key" if status == 401 else None
    return {"error": {"message": message, "type": _OPENAI_TYPES.get(status, "server_error"), "code": code}}


def _anthropic_error(status: int, message: str) -> Json:
    return {"type": "error", "error": {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": message}}


def _gemini_error(status: int, message: str) -> Json:
    return {"error": {"code": status, "message": message, "status": _GEMINI_STATES.get(status, "INTERNAL")}}


def _ollama_error(status: int, message: str) -> Json:
    return {"error": message}


def _of_voice(form: Json) -> Asked:
    return Asked([Turn("user", str(form.get("file", "")))])


OPENAI = Wire("openai", of_chat, _openai_answer, _openai_error)
ANTHROPIC = Wire("anthropic", of_anthropic, _anthropic_answer, _anthropic_error)
GEMINI = Wire("gemini", of_gemini, _gemini_answer, _gemini_error)
OLLAMA = Wire("ollama", of_ollama, _ollama_answer, _ollama_error)
TRANSCRIPTION = Wire("transcription", _of_voice, _transcript, _openai_error)
"""Voice to text: the form's fields are the body, the name of the file stands for what was said."""

CONTEXT_MESSAGES: Mapping[str, str] = {
    "openai": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "ollama": "the prompt is longer than the context length of the model: input length exceeds the context length",
}
"""What each provider says to a prompt that is too long."""

CREDIT_MESSAGES: Mapping[str, tuple[int, str]] = {
    "openai": (429, "You exceeded your current quota, please check your plan and billing details."),
    "anthropic": (400, "Your credit balance is too low to access the Anthropic API."),
    "gemini": (429, "You exceeded your current quota, please check your plan and billing details."),
    "ollama": (402, "Payment required"),
    "transcription": (429, "You exceeded your current quota, please check your plan and billing details."),
}
"""Status and words of each provider when an account has no credit left."""
