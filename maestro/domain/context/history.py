"""The history of a prompt: earlier messages, quoted replies, and the rounds of tool calls so far.

See docs/decisions.md: prompt layers.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from maestro.domain.conversations.conversation import MessageColumns, StoredMessage
from maestro.domain.llm.models import IMAGE_TOKENS, MESSAGE_OVERHEAD, cut, estimate, shorten
from maestro.domain.llm.prompts import ComposedTurn, ImageRef, PromptMessage, Role, ToolCall
from maestro.domain.media import MAX_IMAGES, MediaFile, prompt_text
from maestro.domain.texts import NAME_CHARS, quoted, quoted_lines

QUOTED_CHARS = 500
"""Characters of a message that are quoted; its beginning says which one is meant."""
FRESH = 4
"""Turns before the question that the model has in mind anyway."""

_POSES = re.compile(r"\[\s*agent\b", re.IGNORECASE)
"""How the line begins under which another agent's words stand; see ``persona.said_by``."""

MOST_CALLS = 16
"""Tool calls of one answer that are made; a model that asks for more at once asks again."""

CUT_MARK = "\n[cut: the rest of this result does not fit]"
LEFT_OUT = "[left out: there is no room for this result any more]"
SHORTEST_RESULT = 20
"""Tokens; with less room a result says nothing."""


NEWEST_WEIGHT = 2
"""How much longer than older ones a result of the newest round may be before it is cut: it was asked for just now."""


@dataclass(frozen=True)
class RepliedMessage:
    """A message that somebody replied to, and who said it: an empty ``author`` is the agent that is asked.

    ``message_id`` is the answer in a conversation that it is part of, ``inbox_id`` the row of a person's.
    """

    text: str
    author: str = ""
    message_id: int | None = None
    inbox_id: int | None = None

    def is_one_of(self, lines: Iterable[StoredMessage]) -> bool:
        """Say whether one of these messages of a conversation is the one that is quoted."""
        return any(self._is(line) for line in lines)

    def _is(self, line: StoredMessage) -> bool:
        said = self.inbox_id is not None and line.inbox_id == self.inbox_id
        return said or (self.message_id is not None and line.id == self.message_id)


def quotation_text(quote: RepliedMessage) -> str:
    """Return what the model reads before the words of who replied."""
    whose = quoted(quote.author, NAME_CHARS) if quote.author else "you"
    text = quote.text.strip()
    cut = text if len(text) <= QUOTED_CHARS else f"{text[: QUOTED_CHARS - 1]}…"
    return f"[In reply to what {whose} said:]\n{quoted_lines(cut)}"


class HistoryEntry(NamedTuple):
    """Something that was said; ``tokens`` are those of its text.

    ``author`` is the line that names another agent whose words these are, empty for a person and for the agent itself.
    Where ``plain_chars`` is given, the text is shown just as it is stored, with so many characters, and left out here.
    ``quote`` is told before it: what somebody replied to with it.
    """

    role: Role
    content: str
    tokens: int
    message_id: int | None = None
    files: tuple[MediaFile, ...] = ()
    author: str = ""
    plain_chars: int | None = None
    quote: str = ""

    @classmethod
    def of(cls, message: StoredMessage, files: Sequence[MediaFile] = (), author: str = "") -> "HistoryEntry":
        """Return what a stored message says."""
        number, role, content, tokens, *_, plain_chars = message
        return cls(role, content, tokens, number, tuple(files), author, plain_chars)


class RenderedEntry(NamedTuple):
    """An utterance as the model sees it, what that takes in tokens and characters, and how many were left out of it."""

    turn: ComposedTurn
    tokens: int
    characters: int
    left_out: int = 0


def render_input(asked: Sequence[HistoryEntry], room: int) -> tuple[RenderedEntry, ...]:
    """Return what is to be answered, oldest first: all of it, whole where there is room.

    Where there is not, the longest give way first: of those the beginning and the end are shown, with a mark between.
    Images go along newest first, at most ten in all and only where they fit; every other file is named in the text.
    """
    left = room
    named = [_named(one) for one in asked]
    texts: dict[int, RenderedEntry] = {}
    shortest_first = sorted(range(len(asked)), key=lambda place: named[place].tokens)
    for done, place in enumerate(shortest_first):
        texts[place] = _within(named[place], left // (len(asked) - done))
        left -= texts[place].tokens
    images = MAX_IMAGES
    for place in reversed(range(len(asked))):
        shown = texts[place] if texts[place].left_out else _pictured(asked[place], left, images)
        left -= shown.tokens - texts[place].tokens
        images -= len(shown.turn.images)
        texts[place] = shown
    return tuple(texts[place] for place in range(len(asked)))


def select_history(
    newest_first: Sequence[HistoryEntry], room: int, images: int = MAX_IMAGES
) -> tuple[RenderedEntry, ...]:
    """Return what was said before and fits, oldest first.

    The first utterance that does not fit ends the selection, so that the history has no holes. It begins with what a
    person said: an answer whose question is gone says little, and some providers refuse a history that begins with it.
    """
    chosen: list[RenderedEntry] = []
    for utterance in newest_first:
        shown = _pictured(utterance, room, images)
        room -= shown.tokens
        if room < 0:
            break
        images -= len(shown.turn.images)
        chosen.append(shown)
    while chosen and not _a_person(newest_first[len(chosen) - 1]):
        chosen.pop()
    return tuple(reversed(chosen))


def plain_chars(message: MessageColumns) -> int | None:
    """Return how many characters a message has whose text is shown just as it is stored, None for any other.

    It is kept with the message (``Message.plain_chars``), so that its text need not be read.
    """
    text = message.content
    if message.agent_id is not None or message.has_files or (message.role is Role.USER and _POSES.search(text)):
        return None
    return len(text)


def _a_person(utterance: HistoryEntry) -> bool:
    return utterance.role is Role.USER and not utterance.author


def _named(utterance: HistoryEntry) -> RenderedEntry:
    """Show an utterance with its files by name only."""
    return _render(utterance, ())


def _pictured(utterance: HistoryEntry, room: int, images: int) -> RenderedEntry:
    """Show an utterance with as many of its pictures as may go along and fit."""
    pictures = [file for file in utterance.files if file.is_picture] if utterance.files else ()
    if not pictures:
        return _render(utterance, ())
    affordable = max(0, min(images, (room - _named(utterance).tokens) // IMAGE_TOKENS))
    return _render(utterance, pictures[:affordable])


def _render(utterance: HistoryEntry, pictures: Sequence[MediaFile]) -> RenderedEntry:
    role, content, tokens, message_id, _, author, plain_chars, _ = utterance
    if plain_chars is not None:
        return RenderedEntry(ComposedTurn(role, "", message_id=message_id), MESSAGE_OVERHEAD + tokens, plain_chars)
    text = _text(utterance, pictures)
    if text != content:
        # Text that is not the stored message's own is kept with the prompt.
        tokens, message_id = estimate(text), None
    turn = ComposedTurn(
        role=Role.USER if author else role,
        content=text,
        images=tuple([file.image for file in pictures]) if pictures else (),
        message_id=message_id,
    )
    return RenderedEntry(turn, MESSAGE_OVERHEAD + tokens + IMAGE_TOKENS * len(pictures), len(text))


def _text(utterance: HistoryEntry, pictures: Sequence[MediaFile]) -> str:
    """Return what is read: the words of another agent under its name, each line quoted.

    A person's line that looks like such a name is quoted, too, so that nobody can put words into an agent's mouth.
    """
    role, text, _, _, files, author, _, quote = utterance
    if author:
        return f"{author}\n{quoted_lines(text)}"
    if files:
        text = prompt_text(text, files, {file.seq for file in pictures})
    if role is Role.USER and _POSES.search(text):
        lines = text.splitlines(keepends=True)
        text = "".join(f"> {line}" if _POSES.match(line.lstrip()) else line for line in lines)
    return f"{quote}\n\n{text}" if quote else text


def _within(shown: RenderedEntry, room: int) -> RenderedEntry:
    """Return the same within so many tokens."""
    if shown.tokens <= room:
        return shown
    text, left_out = shorten(shown.turn.content, room - MESSAGE_OVERHEAD)
    turn = shown.turn._replace(content=text, message_id=None)
    return RenderedEntry(turn, MESSAGE_OVERHEAD + estimate(text), len(text), left_out)


@dataclass(frozen=True)
class ToolResult:
    """What one tool call returned: a text, and pictures."""

    text: str
    images: tuple[ImageRef, ...] = ()


@dataclass(frozen=True)
class ToolRound:
    """One answer that asked for tools, with the results in the order of its calls.

    ``chat`` are the posts of #maestro that the model was told of before it, empty when there were none.
    """

    content: str
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]
    chat: str = ""


def limit_calls(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return those of an answer's tool calls that are made."""
    return tuple(calls[:MOST_CALLS])


def build_round(content: str, calls: Sequence[ToolCall], results: Sequence[ToolResult], chat: str = "") -> ToolRound:
    """Return the round of an answer, with the results of the calls that were made; of others the model is told."""
    left = len(calls) - MOST_CALLS
    if left > 0:
        *others, last = results
        told = f"[{left} further calls of this answer were not made: ask for at most {MOST_CALLS} at once]"
        results = [*others, replace(last, text=f"{last.text}\n{told}")]
    return ToolRound(content, limit_calls(calls), tuple(results), chat)


def build_tool_turns(rounds: Sequence[ToolRound], room: int) -> tuple[PromptMessage, ...]:
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
    return tuple(_without_tool_parts(message) for message in messages)


def without_pictures(messages: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
    """Return the same prompt for a model that takes no pictures of tools: it reads that there were some."""
    return tuple(
        message.model_copy(update={"images": ()}) if message.role is Role.TOOL and message.images else message
        for message in messages
    )


def _without_tool_parts(message: PromptMessage) -> PromptMessage:
    if message.role is Role.TOOL:
        told = f"[Result of {message.tool}]\n{message.content}"
        return message.model_copy(update={"role": Role.USER, "content": told, "call_id": "", "tool": ""})
    if message.tool_calls:
        names = ", ".join(call.name for call in message.tool_calls)
        told = "\n".join(filter(None, (message.content, f"[Asked for {names}]")))
        return message.model_copy(update={"content": told, "tool_calls": ()})
    return message


def _cost(one: ToolRound) -> int:
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
    return cut(result, kept) + CUT_MARK if kept >= SHORTEST_RESULT else LEFT_OUT


def _turns(one: ToolRound, results: Sequence[ToolResult]) -> tuple[PromptMessage, ...]:
    answers = [
        PromptMessage(role=Role.TOOL, content=result.text, images=result.images, call_id=call.id, tool=call.name)
        for call, result in zip(one.calls, results, strict=True)
    ]
    chat = (PromptMessage(role=Role.USER, content=one.chat, chat=True),) if one.chat else ()
    return (*chat, PromptMessage(role=Role.ASSISTANT, content=one.content, tool_calls=one.calls), *answers)
