"""The rounds of tool calls so far, as the turns that the model reads before it goes on (specification 003, step 10)."""

from collections.abc import Sequence
from dataclasses import dataclass

from maestro.domain.llm.prompts import PromptMessage, Role, ToolCall
from maestro.domain.llm.tokens import MESSAGE_OVERHEAD, cut, estimate

MOST_CALLS = 16
"""Tool calls of one answer that are made; a model that asks for more at once asks again."""

CUT_MARK = "\n[cut: the rest of this result does not fit]"
LEFT_OUT = "[left out: there is no room for this result any more]"
SHORTEST = 20
"""Tokens; with less room a result says nothing."""


@dataclass(frozen=True)
class Round:
    """One answer that asked for tools, with the results in the order of its calls.

    ``chat`` are the posts of #maestro that the model was told of before it, empty when there were none.
    """

    content: str
    calls: tuple[ToolCall, ...]
    results: tuple[str, ...]
    chat: str = ""


def made(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return those of an answer's tool calls that are made."""
    return tuple(calls[:MOST_CALLS])


def round_of(content: str, calls: Sequence[ToolCall], results: Sequence[str], chat: str = "") -> Round:
    """Return the round of an answer, with the results of the calls that were made; of others the model is told."""
    left = len(calls) - MOST_CALLS
    if left > 0:
        *others, last = results
        told = f"[{left} further calls of this answer were not made: ask for at most {MOST_CALLS} at once]"
        results = [*others, f"{last}\n{told}"]
    return Round(content, made(calls), tuple(results), chat)


def turns(rounds: Sequence[Round], room: int) -> tuple[PromptMessage, ...]:
    """Return the turns of all rounds, oldest first, within ``room`` tokens as far as results can be cut.

    The newest results keep their length, because the model asked for them just now; older ones are cut when there is
    no room for all. What the model itself said stays whole, and so do the posts it was told of: both stand where they
    stood, so that a provider can keep the beginning.
    """
    room -= sum(_cost(one) for one in rounds)
    newest_first: list[tuple[PromptMessage, ...]] = []
    for one in reversed(rounds):
        results, room = _fitting(one.results, room)
        newest_first.append(_turns(one, results))
    return tuple(turn for one in reversed(newest_first) for turn in one)


def without_tools(messages: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
    """Return the same prompt for a model that knows no tools: what they said is told as text."""
    return tuple(_told(message) for message in messages)


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


def _fitting(results: Sequence[str], room: int) -> tuple[list[str], int]:
    """Cut results to the room there is, shared fairly among those that are left, and return what room remains."""
    fitting = []
    for place, result in enumerate(results):
        share = max(0, room) // (len(results) - place)
        fitting.append(_shortened(result, share))
        room -= estimate(fitting[-1])
    return fitting, room


def _shortened(result: str, tokens: int) -> str:
    if estimate(result) <= tokens:
        return result
    kept = tokens - estimate(CUT_MARK)
    return cut(result, kept) + CUT_MARK if kept >= SHORTEST else LEFT_OUT


def _turns(one: Round, results: Sequence[str]) -> tuple[PromptMessage, ...]:
    answers = [
        PromptMessage(role=Role.TOOL, content=result, call_id=call.id, tool=call.name)
        for call, result in zip(one.calls, results, strict=True)
    ]
    chat = (PromptMessage(role=Role.USER, content=one.chat, chat=True),) if one.chat else ()
    return (*chat, PromptMessage(role=Role.ASSISTANT, content=one.content, tool_calls=one.calls), *answers)
