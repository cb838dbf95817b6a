"""The rounds of tool calls so far, as the turns that the model reads before it goes on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from maestro.domain.llm.prompts import ImageRef, PromptMessage, Role, ToolCall
from maestro.domain.llm.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD, cut, estimate
from maestro.domain.media import MAX_IMAGES

MOST_CALLS = 16
"""Tool calls of one answer that are made; a model that asks for more at once asks again."""

CUT_MARK = "\n[cut: the rest of this result does not fit]"
LEFT_OUT = "[left out: there is no room for this result any more]"
SHORTEST = 20
"""Tokens; with less room a result says nothing."""


NEWEST_WEIGHT = 2
"""How much longer than older ones a result of the newest round may be before it is cut: it was asked for just now."""


@dataclass(frozen=True)
class ToolResult:
    """What one tool call returned: a text, and pictures."""

    text: str
    images: tuple[ImageRef, ...] = ()


@dataclass(frozen=True)
class Round:
    """One answer that asked for tools, with the results in the order of its calls.

    ``chat`` are the posts of #maestro that the model was told of before it, empty when there were none.
    """

    content: str
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]
    chat: str = ""


def made(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return those of an answer's tool calls that are made."""
    return tuple(calls[:MOST_CALLS])


def round_of(content: str, calls: Sequence[ToolCall], results: Sequence[ToolResult], chat: str = "") -> Round:
    """Return the round of an answer, with the results of the calls that were made; of others the model is told."""
    left = len(calls) - MOST_CALLS
    if left > 0:
        *others, last = results
        told = f"[{left} further calls of this answer were not made: ask for at most {MOST_CALLS} at once]"
        results = [*others, replace(last, text=f"{last.text}\n{told}")]
    return Round(content, made(calls), tuple(results), chat)


def turns(rounds: Sequence[Round], room: int) -> tuple[PromptMessage, ...]:
    """Return the turns of all rounds, oldest first, within ``room`` tokens as far as results can be cut.

    Short results stay, and the longest are cut first; those of the newest round count half. Pictures stay from the
    newest on, up to ``MAX_IMAGES`` and half of the room. What the model itself said stays whole, and so do the posts it
    was told of: both stand where they stood, so that a provider can keep the beginning.
    """
    room -= sum(_cost(one) for one in rounds)
    results = [result for one in rounds for result in one.results]
    weights = [NEWEST_WEIGHT if one is rounds[-1] else 1 for one in rounds for _ in one.results]
    images = _newest_images([result.images for result in results], min(MAX_IMAGES, room // 2 // IMAGE_TOKENS))
    room -= IMAGE_TOKENS * sum(map(len, images))
    sizes = [estimate(result.text) for result in results]
    texts = map(_shortened, (result.text for result in results), _shares(sizes, weights, max(0, room)))
    fitting = map(ToolResult, texts, images)
    return tuple(turn for one in rounds for turn in _turns(one, [next(fitting) for _ in one.results]))


def without_tools(messages: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
    """Return the same prompt for a model that knows no tools: what they said is told as text."""
    return tuple(_told(message) for message in messages)


def without_pictures(messages: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
    """Return the same prompt for a model that takes no pictures of tools: it reads that there were some."""
    return tuple(
        message.model_copy(update={"images": ()}) if message.role is Role.TOOL and message.images else message
        for message in messages
    )


def _told(message: PromptMessage) -> PromptMessage:
    if message.role is Role.TOOL:
        told = f"[Result of {message.tool}]\n{message.content}"
        return message.model_copy(update={"role": Role.USER, "content": told, "call_id": "", "tool": ""})
    if message.tool_calls:
        names = ", ".join(call.name for call in message.tool_calls)
        told = "\n".join(filter(None, (message.content, f"[Asked for {names}]")))
        return message.model_copy(update={"content": told, "tool_calls": ()})
    return message


def _cost(one: Round) -> int:
    """Return what a round takes beside its results."""
    calls = sum(estimate(call.name) + estimate(call.arguments) + 2 * MESSAGE_OVERHEAD for call in one.calls)
    return MESSAGE_OVERHEAD + estimate(one.content) + calls + (MESSAGE_OVERHEAD + estimate(one.chat) if one.chat else 0)


def _shares(sizes: Sequence[int], weights: Sequence[int], room: int) -> list[int]:
    """Share the room by weight; what a short result leaves of its share goes to the longer ones."""
    shares, weight_left = [0] * len(sizes), sum(weights)
    for place in sorted(range(len(sizes)), key=lambda place: sizes[place] / weights[place]):
        shares[place] = min(sizes[place], room * weights[place] // weight_left)
        room -= shares[place]
        weight_left -= weights[place]
    return shares


def _newest_images(images: Sequence[tuple[ImageRef, ...]], most: int) -> list[tuple[ImageRef, ...]]:
    """Return the pictures of each result, only so many of the newest."""
    newest_first = []
    for of_result in reversed(images):
        newest_first.append(of_result[: max(0, most)])
        most -= len(newest_first[-1])
    return newest_first[::-1]


def _shortened(result: str, tokens: int) -> str:
    if estimate(result) <= tokens:
        return result
    kept = tokens - estimate(CUT_MARK)
    return cut(result, kept) + CUT_MARK if kept >= SHORTEST else LEFT_OUT


def _turns(one: Round, results: Sequence[ToolResult]) -> tuple[PromptMessage, ...]:
    answers = [
        PromptMessage(role=Role.TOOL, content=result.text, images=result.images, call_id=call.id, tool=call.name)
        for call, result in zip(one.calls, results, strict=True)
    ]
    chat = (PromptMessage(role=Role.USER, content=one.chat, chat=True),) if one.chat else ()
    return (*chat, PromptMessage(role=Role.ASSISTANT, content=one.content, tool_calls=one.calls), *answers)
