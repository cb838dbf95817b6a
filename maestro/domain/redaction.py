"""Takes secrets out of texts that are no posts: memory, results of tools, prompts, what goes out.

See docs/decisions.md: redaction.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

from maestro.domain.llm.prompts import PromptMessage
from maestro.domain.scanning import REDACTED, ScanRules, SecretScanner

Redact = Callable[[str], str]
"""Returns a text with a mark in the place of each secret; a post's note is not for these texts."""


class TextKind(StrEnum):
    """What is scanned beside posts, if the configuration says so."""

    MEMORY = "memory"
    TOOLS = "tools"
    LOGS = "logs"
    PROMPTS = "prompts"
    OUTGOING = "outgoing"


def as_it_is(text: str) -> str:
    """Return the text; what is not in scope is not scanned."""
    return text


def redactor(scanner: SecretScanner, rules: ScanRules) -> Redact:
    """Return what takes secrets out of a text.

    One that could not be scanned is kept as far as nothing was found in it, or gives way as a whole, as ``failMode``
    says.
    """

    def redact(text: str) -> str:
        result = scanner.scan(text, rules)
        return REDACTED if result.error and rules.fail_mode == "closed" else result.text

    return redact if rules.enabled else as_it_is


def redacted_value(redact: Redact, key: str, value: str) -> str:
    """Return the value of a key without secrets: its name may be what tells that it is one."""
    named, name = redact(f"{key}: {value}"), f"{key}: "
    return named.removeprefix(name) if named.startswith(name) else redact(value)


def redacted_turns(messages: Sequence[PromptMessage], redact: Redact) -> tuple[PromptMessage, ...]:
    """Return the turns of a prompt without secrets; one that was changed no longer repeats a stored message."""
    return tuple(_turn(message, redact) for message in messages)


def _turn(message: PromptMessage, redact: Redact) -> PromptMessage:
    calls = tuple(call.model_copy(update={"arguments": redact(call.arguments)}) for call in message.tool_calls)
    content = redact(message.content)
    if content == message.content and calls == message.tool_calls:
        return message
    shared = message.stable if content[: message.stable] == message.content[: message.stable] else 0
    changed = {"content": content, "tool_calls": calls, "message_id": None, "stable": shared}
    return message.model_copy(update=changed)
