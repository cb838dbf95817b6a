"""The wire formats of four model providers, as the test server speaks them: what was asked, what is answered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

INPUT_TOKENS = 11
OUTPUT_TOKENS = 7


@dataclass(frozen=True, slots=True)
class Wire:
    """One provider's format: where the prompt is in a request, and how answers and errors look."""

    name: str
    prompt: Callable[[Json], list[str]]
    """The texts of a request in order, system first, the last user message last."""
    answer: Callable[[str, str], Json]
    """(model, text) to the body of a success; an empty text is what the provider sends for nothing."""
    error: Callable[[int, str], Json]
    """(HTTP status, message) to the body of a failure."""


def _text(content: object) -> str:
    """Flatten a message's content, a string or a list of parts, to its text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _chat_prompt(body: Json) -> list[str]:
    return [_text(message.get("content")) for message in body.get("messages", [])]


def _anthropic_prompt(body: Json) -> list[str]:
    return [_text(body.get("system", "")), *_chat_prompt(body)]


def _gemini_prompt(body: Json) -> list[str]:
    system = body.get("system_instruction") or body.get("systemInstruction") or {}
    return [_text(system.get("parts")), *(_text(turn.get("parts")) for turn in body.get("contents", []))]


def _openai_answer(model: str, text: str) -> Json:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {**usage, "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS},
    }


def _anthropic_answer(model: str, text: str) -> Json:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS},
    }


def _gemini_answer(model: str, text: str) -> Json:
    parts = [{"text": text}] if text else []
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": INPUT_TOKENS,
            "candidatesTokenCount": OUTPUT_TOKENS,
            "totalTokenCount": INPUT_TOKENS + OUTPUT_TOKENS,
        },
        "modelVersion": model,
    }


def _ollama_answer(model: str, text: str) -> Json:
    return {
        "model": model,
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": text},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": INPUT_TOKENS,
        "eval_count": OUTPUT_TOKENS,
    }


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


OPENAI = Wire("openai", _chat_prompt, _openai_answer, _openai_error)
ANTHROPIC = Wire("anthropic", _anthropic_prompt, _anthropic_answer, _anthropic_error)
GEMINI = Wire("gemini", _gemini_prompt, _gemini_answer, _gemini_error)
OLLAMA = Wire("ollama", _chat_prompt, _ollama_answer, _ollama_error)

CONTEXT_MESSAGES: Mapping[str, str] = {
    "openai": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "ollama": "the prompt is longer than the context length of the model: input length exceeds the context length",
}
"""What each provider says to a prompt that is too long."""
