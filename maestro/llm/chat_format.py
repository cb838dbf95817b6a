"""Converts requests and answers to and from OpenAI's chat format, which litellm accepts for every provider."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from maestro.domain.llm.models import OLLAMA
from maestro.domain.llm.prompts import LLMRequest, PromptMessage, Role, ToolCall, Usage
from maestro.domain.texts import storable_text
from maestro.domain.tools import call_id

ANTHROPIC = "anthropic"

ANSWER_NOW = "Answer now, in words: no tools are left to call."
"""The last line of the system message in a final call, for providers without an option to forbid tools."""

PICTURES_OF_TOOLS = "(The pictures that the tools above returned.)"
"""The text of a message with the images of tool results, for models that accept no image in a tool result."""

_CACHE = {"type": "ephemeral"}
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


def chat_messages(provider: str, request: LLMRequest, images: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return the messages of a request in chat format; ``images`` are the data URLs of each message."""
    # Empty assistant messages are left out, because litellm would replace each by an invented sentence.
    sent = [
        (message, urls)
        for message, urls in zip(request.messages, images, strict=True)
        if message.role is not Role.ASSISTANT or message.content.strip() or message.tool_calls
    ]
    messages = list(_chat_messages(provider, sent))
    if request.tools and request.final and provider == OLLAMA:
        messages[0] = {**messages[0], "content": f"{messages[0]['content']}\n\n{ANSWER_NOW}"}
    return messages


def offer_tools(provider: str, request: LLMRequest) -> dict[str, Any]:
    """Return the arguments of a call that offer the request's tools to the model.

    A final call still lists the tools, because providers cache them with the prompt, but forbids their use. Ollama has
    no option to forbid tools, so a final call to Ollama lists none.
    """
    if not request.tools or (request.final and provider == OLLAMA):
        return {}
    functions = (
        {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters)}
        for tool in request.tools
    )
    offered: dict[str, Any] = {"tools": [{"type": "function", "function": function} for function in functions]}
    return {**offered, "tool_choice": "none"} if request.final else offered


def read_tool_calls(message: Any, call_number: int) -> Iterator[ToolCall]:
    """Yield the tool calls in the answer to the model call with this number; their arguments are not parsed."""
    for index, call in enumerate(message.tool_calls or ()):
        name, arguments = storable_text(call.function.name or ""), storable_text(call.function.arguments or "")
        yield ToolCall(id=call_id(call_number, index), name=name, arguments=arguments)


def read_usage(answer: Any) -> Usage:
    """Return the token usage of an answer; cached tokens are capped at the number of input tokens."""
    reported = answer.usage
    details = getattr(reported, "prompt_tokens_details", None)
    cached = min(getattr(details, "cached_tokens", None) or 0, reported.prompt_tokens)
    written = min(getattr(details, "cache_creation_tokens", None) or 0, reported.prompt_tokens - cached)
    return Usage(
        input_tokens=reported.prompt_tokens,
        output_tokens=reported.completion_tokens,
        cached_tokens=cached,
        cache_write_tokens=written,
    )


def _chat_messages(provider: str, sent: Sequence[tuple[PromptMessage, Sequence[str]]]) -> Iterator[dict[str, Any]]:
    """Yield the messages in chat format; images returned by tools follow the last tool result of their round.

    Only Anthropic accepts images inside a tool result, and no provider accepts a message between the results of one
    round.
    """
    pictures: list[str] = []
    for message, urls in sent:
        if message.role is not Role.TOOL and pictures:
            yield {"role": Role.USER.value, "content": _content_with_images(PICTURES_OF_TOOLS, pictures)}
            pictures = []
        if message.role is Role.TOOL and provider != ANTHROPIC:
            pictures += urls
            urls = ()
        yield _chat_message(provider, message, urls)
    if pictures:
        yield {"role": Role.USER.value, "content": _content_with_images(PICTURES_OF_TOOLS, pictures)}


def _chat_message(provider: str, message: PromptMessage, urls: Sequence[str]) -> dict[str, Any]:
    chat_message: dict[str, Any] = {"role": message.role.value, "content": _content_with_images(message.content, urls)}
    if message.role is Role.TOOL:
        chat_message |= {"tool_call_id": message.call_id, "content": _tool_result(provider, message, urls)}
    if message.tool_calls:
        chat_message["content"] = chat_message["content"] or None
        chat_message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": _valid_tool_name(call.name), "arguments": _json_arguments(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return add_cache_marks(chat_message, message.stable) if message.cache and provider == ANTHROPIC else chat_message


def _content_with_images(text: str, urls: Sequence[str]) -> str | list[dict[str, Any]]:
    """Return the text and the images; images are data URLs, so that the provider need not fetch them."""
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"type": "text", "text": text}, *images] if images else text


def _tool_result(provider: str, message: PromptMessage, urls: Sequence[str]) -> str | list[dict[str, Any]]:
    """Return a tool's result in the provider's format, or in the format that litellm converts to it."""
    match provider:
        case "ollama":
            # litellm drops the tool's name, and Ollama's tool calls have no ids, so the text names the tool.
            return f"Result of {_valid_tool_name(message.tool)}:\n{message.content}"
        case "gemini":
            # litellm would treat a plain text that begins with "data:" as an image.
            return [{"type": "text", "text": message.content}]
        case _:
            return _content_with_images(message.content, urls)


def add_cache_marks(chat_message: dict[str, Any], stable_chars: int) -> dict[str, Any]:
    """Return a message with cache marks at its end and after its first ``stable_chars`` characters.

    A change after those characters then leaves the cached beginning valid.
    """
    if 0 < stable_chars < len(chat_message["content"] or ""):
        texts = (chat_message["content"][:stable_chars], chat_message["content"][stable_chars:])
        return {**chat_message, "content": [{"type": "text", "text": text, "cache_control": _CACHE} for text in texts]}
    if chat_message["role"] == Role.TOOL.value:
        return {**chat_message, "cache_control": _CACHE}
    content = chat_message["content"]
    if not content:
        *before, last = chat_message["tool_calls"]
        return {**chat_message, "tool_calls": [*before, {**last, "cache_control": _CACHE}]}
    *parts, end = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**chat_message, "content": [*parts, {**end, "cache_control": _CACHE}]}


def _valid_tool_name(name: str) -> str:
    """Return a tool name that providers accept; a model may have called a tool by an invalid name."""
    return _NOT_IN_A_NAME.sub("_", name)[:64] or "unknown"


def _json_arguments(text: str) -> str:
    """Return tool arguments as a JSON object; any other text, which providers would refuse, is wrapped in an object."""
    try:
        valid = isinstance(json.loads(text), dict)
    except ValueError:
        valid = False
    return text if valid else json.dumps({"unreadable": text})
