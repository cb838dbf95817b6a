"""The stream formats of providers: the request fields for a stream, and the assembly of its events into an answer.

The assembled answer equals the answer without streaming, so that all further code reads both the same way. A stream
without the provider's end marker counts as a failure.
"""

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from io import StringIO
from typing import Any

Json = dict[str, Any]

Listener = Callable[[str], None]
"""A function that receives an answer's text in pieces; it runs on the event loop and must not block or raise."""

_TEXTS = ("content", "refusal", "reasoning", "reasoning_content")
"""The text fields of a message that arrive in pieces in OpenAI's format."""

_GROWING = frozenset({"text", "thinking", "signature", "partial_json"})
"""The text fields of a content block that Anthropic sends in pieces."""


class StreamBroken(Exception):
    """The error for a stream that reports an error, ends early, or has an invalid format."""


StreamedTexts = defaultdict[str, StringIO]
"""Texts that arrive in pieces, by field name; a piece that is no text raises ``TypeError`` at once."""


class StreamedAnswer(ABC):
    """A streamed answer during its assembly; ``complete`` is true once the provider's end marker has arrived."""

    def __init__(self) -> None:
        self.complete = False
        self._head: Json = {}
        self._texts = StreamedTexts(StringIO)

    @abstractmethod
    def add_event(self, data: Json) -> str:
        """Add one event of the stream, and return the answer's text in it."""

    @abstractmethod
    def assemble_body(self) -> Json:
        """Return the body that the provider would have sent without streaming."""


class OpenAIAnswer(StreamedAnswer):
    """A streamed chat completion of OpenAI, or of a provider with the same wire format."""

    def __init__(self) -> None:
        super().__init__()
        self._message: Json = {"role": "assistant", "content": None}
        self._calls: dict[int, Json] = {}
        self._finish = None

    def add_event(self, data: Json) -> str:
        """Add a chunk of the completion; the chunk with the token usage has no choice."""
        self._head |= {name: value for name, value in data.items() if name != "choices" and value is not None}
        text = ""
        for choice in data.get("choices") or ():
            text += self._add_delta(choice.get("delta") or {})
            self._finish = choice.get("finish_reason") or self._finish
        self.complete = self._finish is not None
        return text

    def _add_delta(self, delta: Json) -> str:
        for name, value in delta.items():
            if name in _TEXTS and isinstance(value, str):
                self._texts[name].write(value)
            elif name not in ("role", "tool_calls", *_TEXTS) and value is not None:
                self._message[name] = value
        for call in delta.get("tool_calls") or ():
            self._add_call(call)
        return delta.get("content") or ""

    def _add_call(self, call: Json) -> None:
        index: Any = call.get("index")
        function = call.get("function") or {}
        # Some providers send each tool call whole, without an index, or with the same index for all.
        known_id = self._calls.get(index, {}).get("id")
        is_another = function.get("name") and call.get("id") and known_id not in (None, call["id"])
        if index is None or is_another:
            index = len(self._calls)
        whole = self._calls.setdefault(index, {"type": "function", "function": {"name": "", "arguments": ""}})
        whole |= {name: call[name] for name in ("id", "type") if call.get(name)}
        for name in ("name", "arguments"):
            whole["function"][name] += function.get(name) or ""

    def assemble_body(self) -> Json:
        """Return the assembled completion."""
        calls = {"tool_calls": [self._calls[index] for index in sorted(self._calls)]} if self._calls else {}
        message = {**self._message, **join_texts(self._texts), **calls}
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return {**self._head, "object": "chat.completion", "choices": [choice]}


class AnthropicAnswer(StreamedAnswer):
    """A streamed message of Anthropic."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, Json] = {}
        self._block_texts: dict[int, StreamedTexts] = {}

    def add_event(self, data: Json) -> str:
        """Add an event of the message."""
        match data.get("type"):
            case "message_start":
                self._head = data["message"]
            case "content_block_start":
                index, block = data["index"], data["content_block"]
                self._blocks[index], self._block_texts[index] = block, StreamedTexts(StringIO)
                for name in _GROWING & block.keys():
                    self._block_texts[index][name].write(block[name] or "")
                return str(block.get("text") or "")
            case "content_block_delta":
                return self._add_delta(data["index"], data["delta"])
            case "message_delta":
                self._head |= data["delta"]
                usage = {name: value for name, value in (data.get("usage") or {}).items() if value is not None}
                self._head["usage"] = {**self._head.get("usage", {}), **usage}
            case "message_stop":
                self.complete = True
        return ""

    def _add_delta(self, index: int, delta: Json) -> str:
        block, texts = self._blocks[index], self._block_texts[index]
        if delta["type"] == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        for name in _GROWING & delta.keys():
            texts[name].write(delta[name])
        return str(delta.get("text") or "")

    def assemble_body(self) -> Json:
        """Return the assembled message."""
        return {**self._head, "content": [self._assemble_block(index) for index in sorted(self._blocks)]}

    def _assemble_block(self, index: int) -> Json:
        texts = join_texts(self._block_texts[index])
        arguments = texts.pop("partial_json", None)
        return {**self._blocks[index], **texts, **({} if arguments is None else {"input": parse_arguments(arguments)})}


class GeminiAnswer(StreamedAnswer):
    """A streamed response of Gemini."""

    def __init__(self) -> None:
        super().__init__()
        self._candidate: Json = {}
        self._parts: list[Json] = []

    def add_event(self, data: Json) -> str:
        """Add a partial response; the response to a refused prompt has no candidate."""
        self._head |= {name: value for name, value in data.items() if name != "candidates"}
        self.complete = self.complete or bool((data.get("promptFeedback") or {}).get("blockReason"))
        text = ""
        for candidate in (data.get("candidates") or ())[:1]:
            self._candidate |= {name: value for name, value in candidate.items() if name != "content"}
            self.complete = self.complete or bool(candidate.get("finishReason"))
            text += "".join(map(self._add_delta, (candidate.get("content") or {}).get("parts") or ()))
        return text

    def _add_delta(self, part: Json) -> str:
        last = self._parts[-1] if self._parts else {}
        if is_plain_text(part) and is_plain_text(last) and part.get("thought") == last.get("thought"):
            self._parts[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            self._parts.append(part)
        return "" if part.get("thought") else str(part.get("text") or "")

    def assemble_body(self) -> Json:
        """Return the assembled response."""
        if not self._candidate:
            return self._head
        content = {"role": "model", "parts": self._parts}
        return {**self._head, "candidates": [{**self._candidate, "content": content}]}


class OllamaAnswer(StreamedAnswer):
    """A streamed chat response of Ollama."""

    def __init__(self) -> None:
        super().__init__()
        self._message: Json = {"role": "assistant", "content": ""}

    def add_event(self, data: Json) -> str:
        """Add a line of the stream; the last line has the token usage."""
        message = data.get("message") or {}
        for name in ("content", "thinking"):
            if message.get(name):
                self._texts[name].write(message[name])
        if message.get("tool_calls"):
            self._message["tool_calls"] = [*self._message.get("tool_calls", ()), *message["tool_calls"]]
        self._head, self.complete = data, data.get("done") is True
        return str(message.get("content") or "")

    def assemble_body(self) -> Json:
        """Return the stream's last line, with its message replaced by the assembled message."""
        return {**self._head, "message": {**self._message, **join_texts(self._texts)}}


@dataclass(frozen=True)
class StreamFormat:
    """A provider's stream format: the fields to add to a request body, and the class that assembles the answer.

    ``method`` replaces the method name at the end of the request's path, for providers that have one there.
    """

    fields: Json
    answer: Callable[[], StreamedAnswer]
    method: str = ""


_FORMATS = {
    "/chat/completions": StreamFormat({"stream": True, "stream_options": {"include_usage": True}}, OpenAIAnswer),
    "/v1/messages": StreamFormat({"stream": True}, AnthropicAnswer),
    ":generateContent": StreamFormat({}, GeminiAnswer, ":streamGenerateContent"),
    "/api/chat": StreamFormat({"stream": True}, OllamaAnswer),
}
"""Stream formats by the end of the request's path."""


def stream_format(path: str) -> tuple[str, StreamFormat] | None:
    """Return the end of a request's path and its stream format; None for a call that cannot be streamed."""
    return next(((ending, stream_format) for ending, stream_format in _FORMATS.items() if path.endswith(ending)), None)


async def assemble_answer(blocks: AsyncIterator[bytes], answer: StreamedAnswer, listener: Listener) -> Json:
    """Return the answer assembled from a stream, passing its text to the listener; raises ``StreamBroken``."""
    async for line in split_lines(blocks):
        data = parse_event(line)
        if data is None:
            continue
        if data.get("error") or data.get("type") == "error":
            raise StreamBroken("the stream reported an error")
        text = answer.add_event(data)
        if text:
            listener(text)
    if not answer.complete:
        raise StreamBroken("the stream ended in the middle of an answer")
    return answer.assemble_body()


async def split_lines(blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, split at line feeds only: texts in JSON may contain other line separators."""
    line: list[bytes] = []
    async for piece in blocks:
        end, *lines = piece.split(b"\n")
        line.append(end)
        for beginning in lines:
            yield b"".join(line)
            line = [beginning]
    yield b"".join(line)


def parse_event(line: bytes) -> Json | None:
    """Return the JSON event in a line of server-sent events or of plain JSON; None for a line without data."""
    content = line.removeprefix(b"data:").strip()
    if not content.startswith(b"{"):
        return None
    data = json.loads(content)
    return data if isinstance(data, dict) else None


def join_texts(texts: StreamedTexts) -> dict[str, str]:
    return {name: text.getvalue() for name, text in texts.items()}


def is_plain_text(part: Json) -> bool:
    return "text" in part and part.keys() <= {"text", "thought"}


def parse_arguments(written: str) -> Json:
    """Return the arguments of a tool call; text that is no JSON object, such as cut-off text, is wrapped in one."""
    try:
        arguments = json.loads(written or "{}")
    except ValueError:
        arguments = None
    return arguments if isinstance(arguments, dict) else {"unreadable": written}
