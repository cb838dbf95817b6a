"""A prompt as one text, for the command ``claude``, which reads nothing but text."""

from collections.abc import Iterator, Sequence

from maestro.domain.llm.prompts import PromptMessage, Role


def prompt_of(messages: Sequence[PromptMessage]) -> str:
    """Return the system message, then each turn behind its role: ``[user]: ...``.

    Further lines of a turn are indented, so that nothing in it can pose as a turn of its own (docs/decisions.md: prompt
    layers).
    """
    return "\n\n".join(_turn(message) for message in messages) + "\n"


def _turn(message: PromptMessage) -> str:
    if message.role is Role.SYSTEM:
        return message.content
    speaker = f"tool {message.tool}" if message.role is Role.TOOL else message.role.value
    first, *more = list(_lines(message)) or [""]
    return "\n".join([f"[{speaker}]: {first}", *(f"  {line}" for line in more)])


def _lines(message: PromptMessage) -> Iterator[str]:
    yield from message.content.splitlines()
    yield from (f"(calls {call.name} with {' '.join(call.arguments.split())})" for call in message.tool_calls)
    if message.images:
        count = len(message.images)
        yield f"({'an image that' if count == 1 else f'{count} images that'} cannot be shown here)"
