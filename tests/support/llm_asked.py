"""What was asked of a model, read from a request in any of the four wire formats."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from maestro.domain.agent_chat import HEADING

Json = dict[str, Any]


@dataclass(slots=True)
class Turn:
    """One message: who speaks, the text, and what else it holds."""

    role: str
    text: str = ""
    images: list[bytes] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments, as JSON text, of each tool call."""
    results: list[tuple[str, str]] = field(default_factory=list)
    """Tool and text of each result."""

    @property
    def said(self) -> bool:
        """Whether the user says something here: posts of #maestro stand in the user's place, but are not the user's."""
        return self.role == "user" and bool(self.text) and not self.fed

    @property
    def fed(self) -> bool:
        """Whether these are posts of #maestro."""
        return self.text.startswith(HEADING)


@dataclass(slots=True)
class Asked:
    """A request: its turns, the system's first, and what it says of tools."""

    turns: list[Turn]
    tools: list[str] = field(default_factory=list)
    """The names of the tools on offer."""
    tool_choice: str = ""
    """``none``, ``auto`` and the like, empty when nothing is said."""

    @property
    def last_user(self) -> str:
        """The last text of the user, or the last text of all where no user says anything."""
        said = [turn.text for turn in self.turns if turn.said]
        return said[-1] if said else self.turns[-1].text if self.turns else ""

    @property
    def results(self) -> list[tuple[str, str]]:
        """Tool and text of every tool result, in order."""
        return [result for turn in self.turns for result in turn.results]

    @property
    def rounds(self) -> int:
        """How many rounds of tool calls there have been since the user spoke."""
        spoke = max((at for at, turn in enumerate(self.turns) if turn.said), default=0)
        return sum(bool(turn.calls) for turn in self.turns[spoke:])


def cache_marks(body: Any) -> list[str]:
    """The texts of all blocks that are marked for the provider's cache, in order; of a block without text its type."""
    if isinstance(body, list):
        return [mark for part in body for mark in cache_marks(part)]
    if not isinstance(body, dict):
        return []
    own = [str(body.get("text") or body.get("type"))] if body.get("cache_control") else []
    return own + [mark for name, part in body.items() if name != "cache_control" for mark in cache_marks(part)]


def of_chat(body: Json) -> Asked:
    """OpenAI's wire."""
    names: dict[str, str] = {}
    turns = []
    for message in body.get("messages", []):
        calls = [_function(call) for call in message.get("tool_calls") or ()]
        names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
        text, role = text_of(message.get("content")), message["role"]
        if role == "tool":
            turns.append(Turn(role, results=[(names[message["tool_call_id"]], text)]))
        else:
            turns.append(Turn(role, text, list(_pictures(message.get("content"))), calls))
    return Asked(turns, _names(body), _choice(body.get("tool_choice")))


def of_anthropic(body: Json) -> Asked:
    """Anthropic's wire."""
    names: dict[str, str] = {}
    turns = [Turn("system", text_of(body.get("system", "")))]
    for message in body.get("messages", []):
        turn = Turn(message["role"], text_of(message["content"]))
        for block in message["content"] if isinstance(message["content"], list) else ():
            match block.get("type"):
                case "tool_use":
                    names[block["id"]] = block["name"]
                    turn.calls.append((block["name"], json.dumps(block["input"])))
                case "tool_result":
                    content = block.get("content", "")
                    turn.results.append((names[block["tool_use_id"]], text_of(content)))
                    pictures = [part for part in content if isinstance(part, dict) and part["type"] == "image"]
                    turn.images += [base64.b64decode(picture["source"]["data"]) for picture in pictures]
                case "image":
                    turn.images.append(base64.b64decode(block["source"]["data"]))
        turns.append(turn)
    tools = [tool["name"] for tool in body.get("tools", [])]
    return Asked(turns, tools, (body.get("tool_choice") or {}).get("type", ""))


def of_gemini(body: Json) -> Asked:
    """Google's wire."""
    system = body.get("system_instruction") or body.get("systemInstruction") or {}
    turns = [Turn("system", text_of(system.get("parts")))]
    for content in body.get("contents", []):
        turn = Turn({"model": "assistant"}.get(content["role"], content["role"]), text_of(content["parts"]))
        for part in content["parts"]:
            if call := _either(part, "function_call", "functionCall"):
                turn.calls.append((call["name"], json.dumps(call["args"])))
            if result := _either(part, "function_response", "functionResponse"):
                turn.results.append((result["name"], _gemini_result(result["response"])))
            if picture := _either(part, "inline_data", "inlineData"):
                turn.images.append(base64.b64decode(picture["data"]))
        turns.append(turn)
    tools = [
        tool["name"]
        for group in body.get("tools", [])
        for tool in _either(group, "function_declarations", "functionDeclarations") or ()
    ]
    mode = (_either(body, "tool_config", "toolConfig") or {}).get("functionCallingConfig") or {}
    mode = mode or (_either(body, "tool_config", "toolConfig") or {}).get("function_calling_config") or {}
    return Asked(turns, tools, str(mode.get("mode", "")).lower())


def of_ollama(body: Json) -> Asked:
    """Ollama's wire, where a result does not say whose it is: the calls before it are answered in order."""
    turns: list[Turn] = []
    waiting: list[str] = []
    for message in body.get("messages", []):
        text, role = text_of(message.get("content")), message["role"]
        if role == "tool":
            turns.append(Turn(role, results=[(waiting.pop(0), text)]))
            continue
        calls = [(call["function"]["name"], json.dumps(call["function"]["arguments"])) for call in _calls(message)]
        waiting = [name for name, _ in calls]
        turns.append(Turn(role, text, [base64.b64decode(image) for image in message.get("images") or ()], calls))
    return Asked(turns, _names(body), _choice(body.get("tool_choice")))


READERS: Mapping[str, Callable[[Json], Asked]] = {
    "openai": of_chat,
    "anthropic": of_anthropic,
    "gemini": of_gemini,
    "ollama": of_ollama,
}


def text_of(content: object) -> str:
    """Flatten a message's content, a string or a list of parts, to its text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _pictures(content: object) -> Iterator[bytes]:
    for part in content if isinstance(content, list) else ():
        if part.get("type") == "image_url":
            yield base64.b64decode(part["image_url"]["url"].partition(";base64,")[2])


def _calls(message: Json) -> list[Json]:
    return message.get("tool_calls") or []


def _function(call: Json) -> tuple[str, str]:
    return call["function"]["name"], call["function"]["arguments"]


def _names(body: Json) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools") or ()]


def _choice(choice: object) -> str:
    return choice if isinstance(choice, str) else "" if choice is None else json.dumps(choice)


def _either(part: Json, *names: str) -> Any:
    return next((part[name] for name in names if name in part), None)


def _gemini_result(response: Json) -> str:
    """A result that is no JSON object arrives inside of one."""
    return str(response["content"]) if set(response) == {"content"} else json.dumps(response)
