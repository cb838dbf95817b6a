"""The history in a prompt: earlier messages, quoted replies and tool rounds (docs/decisions.md: prompt layers)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from maestro.domain.conversations.conversation import MessageColumns, StoredMessage
from maestro.domain.llm.models import IMAGE_TOKENS, MESSAGE_OVERHEAD, cut_to_tokens, estimate_tokens, shorten_to_tokens
from maestro.domain.llm.prompts import ComposedTurn, ImageRef, PromptMessage, Role, ToolCall
from maestro.domain.media import MAX_IMAGES, MediaFile, prompt_text
from maestro.domain.redaction import Redact
from maestro.domain.texts import NAME_CHARS, quote_text, quoted_lines

QUOTED_CHARS = 500
"""The most characters of a quoted message; the beginning is enough to identify the message."""
FRESH = 4
"""The number of newest messages that a reply does not quote, because the model reads them anyway."""

_AGENT_HEADING = re.compile(r"\[\s*agent\b", re.IGNORECASE)
"""The beginning of a line that names another agent as the author of a text; see ``speaker_line``."""

MOST_CALLS = 16
"""The most tool calls of one answer that Maestro executes; for more, the model must ask again."""

CUT_MARK = "\n[cut: the rest of this result does not fit]"
LEFT_OUT = "[left out: there is no room for this result any more]"
SHORTEST_RESULT = 20
"""The fewest tokens of a cut tool result; a shorter result is left out, because it would be useless."""

NEWEST_WEIGHT = 2
"""How many times longer tool results of the newest round may be: the model has just asked for them."""


@dataclass(frozen=True)
class RepliedMessage:
    """The message to which a user replied, and its author; an empty ``author`` is the answering agent.

    ``message_id`` is the message's row in the conversation if an agent wrote it, ``inbox_id`` its row in the inbox if a
    user wrote it.
    """

    text: str
    author: str = ""
    message_id: int | None = None
    inbox_id: int | None = None

    def is_one_of(self, messages: Iterable[StoredMessage]) -> bool:
        """Return whether the replied message is one of these messages of a conversation."""
        return any(
            (self.inbox_id is not None and message.inbox_id == self.inbox_id)
            or (self.message_id is not None and message.id == self.message_id)
            for message in messages
        )


def quotation_text(quote: RepliedMessage) -> str:
    """Return the quotation that precedes a reply in the prompt, cut to ``QUOTED_CHARS`` characters."""
    author = quote_text(quote.author, NAME_CHARS) if quote.author else "you"
    text = quote.text.strip()
    beginning = text if len(text) <= QUOTED_CHARS else f"{text[: QUOTED_CHARS - 1]}…"
    return f"[In reply to what {author} said:]\n{quoted_lines(beginning)}"


class HistoryEntry(NamedTuple):
    """A message of a conversation for a prompt; ``tokens`` are the estimated tokens of its text.

    ``author`` is the line that names another agent as the author, empty for a user and for the answering agent. If the
    text is used exactly as stored, ``plain_chars`` is its number of characters and ``content`` is empty. ``quote`` is
    the quotation of the message to which this message replies.
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
    def from_message(cls, message: StoredMessage, files: Sequence[MediaFile] = (), author: str = "") -> "HistoryEntry":
        """Return the history entry of a stored message."""
        number, role, content, tokens, *_, plain_chars = message
        return cls(role, content, tokens, number, tuple(files), author, plain_chars)


class RenderedEntry(NamedTuple):
    """A message as the model gets it, its size in tokens and characters, and the number of characters left out."""

    turn: ComposedTurn
    tokens: int
    characters: int
    left_out: int = 0


def render_input(entries: Sequence[HistoryEntry], room: int) -> tuple[RenderedEntry, ...]:
    """Return the messages to answer, oldest first, within ``room`` tokens: all of them, whole if they fit.

    If they do not fit, the longest are shortened first: the beginning and the end remain, with a mark between them.
    Images are attached newest first, at most ``MAX_IMAGES`` in all and only if they fit. Every other file is named in
    the text.
    """
    remaining = room
    rendered = [_render_entry(entry, ()) for entry in entries]
    shortest_first = sorted(range(len(entries)), key=lambda index: rendered[index].tokens)
    for done, index in enumerate(shortest_first):
        share = remaining // (len(entries) - done)
        if rendered[index].tokens > share:
            rendered[index] = _shorten_entry(rendered[index], share)
        remaining -= rendered[index].tokens
    images = MAX_IMAGES
    for index in reversed(range(len(entries))):
        if not rendered[index].left_out:
            with_images = _render_with_images(entries[index], remaining, images)
            remaining -= with_images.tokens - rendered[index].tokens
            images -= len(with_images.turn.images)
            rendered[index] = with_images
    return tuple(rendered)


def select_history(
    newest_first: Sequence[HistoryEntry], room: int, images: int = MAX_IMAGES
) -> tuple[RenderedEntry, ...]:
    """Return the newest earlier messages that fit into ``room`` tokens, oldest first.

    The first message that does not fit ends the selection, so that the history has no gaps. The history begins with a
    user's message: an answer without its question is of little use, and some providers refuse it as the first message.
    """
    chosen: list[RenderedEntry] = []
    for entry in newest_first:
        rendered = _render_with_images(entry, room, images)
        room -= rendered.tokens
        if room < 0:
            break
        images -= len(rendered.turn.images)
        chosen.append(rendered)
    while chosen and (newest_first[len(chosen) - 1].role is not Role.USER or newest_first[len(chosen) - 1].author):
        chosen.pop()
    return tuple(reversed(chosen))


def plain_chars(message: MessageColumns) -> int | None:
    """Return the number of characters of a message that prompts use exactly as stored, None for any other message.

    The number is stored with the message (``Message.plain_chars``), so that the text need not be read again.
    """
    text = message.content
    if message.agent_id is not None or message.has_files or (message.role is Role.USER and _AGENT_HEADING.search(text)):
        return None
    return len(text)


def _render_with_images(entry: HistoryEntry, room: int, images: int) -> RenderedEntry:
    """Render a message with as many of its images as ``images`` allows and ``room`` tokens can hold."""
    pictures = [file for file in entry.files if file.is_picture] if entry.files else ()
    if not pictures:
        return _render_entry(entry, ())
    affordable = max(0, min(images, (room - _render_entry(entry, ()).tokens) // IMAGE_TOKENS))
    return _render_entry(entry, pictures[:affordable])


def _render_entry(entry: HistoryEntry, pictures: Sequence[MediaFile]) -> RenderedEntry:
    """Render a message with the given images; every other file of the message is named in the text."""
    role, content, tokens, message_id, _, author, plain_chars, _ = entry
    if plain_chars is not None:
        return RenderedEntry(ComposedTurn(role, "", message_id=message_id), MESSAGE_OVERHEAD + tokens, plain_chars)
    text = _model_text(entry, pictures)
    if text != content:
        # A text that differs from the stored message is stored with the prompt, and not by the message's id.
        tokens, message_id = estimate_tokens(text), None
    turn = ComposedTurn(
        role=Role.USER if author else role,
        content=text,
        images=tuple([ImageRef(digest=file.digest, content_type=file.content_type) for file in pictures]),
        message_id=message_id,
    )
    return RenderedEntry(turn, MESSAGE_OVERHEAD + tokens + IMAGE_TOKENS * len(pictures), len(text))


def _model_text(entry: HistoryEntry, pictures: Sequence[MediaFile]) -> str:
    """Return the text for the model; the text of another agent follows a line with the agent's name, each line quoted.

    A line of a user's message that looks like such a name line is quoted, so that no user can imitate an agent.
    """
    role, text, _, _, files, author, _, quote = entry
    if author:
        return f"{author}\n{quoted_lines(text)}"
    if files:
        text = prompt_text(text, files, {file.seq for file in pictures})
    if role is Role.USER and _AGENT_HEADING.search(text):
        lines = text.splitlines(keepends=True)
        text = "".join(f"> {line}" if _AGENT_HEADING.match(line.lstrip()) else line for line in lines)
    return f"{quote}\n\n{text}" if quote else text


def _shorten_entry(rendered: RenderedEntry, room: int) -> RenderedEntry:
    text, left_out = shorten_to_tokens(rendered.turn.content, room - MESSAGE_OVERHEAD)
    turn = rendered.turn._replace(content=text, message_id=None)
    return RenderedEntry(turn, MESSAGE_OVERHEAD + estimate_tokens(text), len(text), left_out)


@dataclass(frozen=True)
class ToolResult:
    """The result of one tool call: a text and images."""

    text: str
    images: tuple[ImageRef, ...] = ()


@dataclass(frozen=True)
class ToolRound:
    """A tool round: an answer that calls tools, with the results in the order of the calls.

    ``chat`` is the text of the posts of #maestro that the prompt contained before the round, empty without posts.
    """

    content: str
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]
    chat: str = ""


def limit_calls(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the first ``MOST_CALLS`` tool calls of an answer; only these are executed."""
    return tuple(calls[:MOST_CALLS])


def build_round(content: str, calls: Sequence[ToolCall], results: Sequence[ToolResult], chat: str = "") -> ToolRound:
    """Return the tool round of an answer, with the results of the executed calls.

    If the answer had more than ``MOST_CALLS`` calls, a note after the last result tells the model so.
    """
    surplus = len(calls) - MOST_CALLS
    if surplus > 0:
        *others, last = results
        note = f"[{surplus} further calls of this answer were not made: ask for at most {MOST_CALLS} at once]"
        results = [*others, replace(last, text=f"{last.text}\n{note}")]
    return ToolRound(content, limit_calls(calls), tuple(results), chat)


def build_tool_turns(rounds: Sequence[ToolRound], room: int) -> tuple[PromptMessage, ...]:
    """Return the prompt messages of all rounds, oldest first, within ``room`` tokens if cutting results allows it.

    Short results stay whole, and the longest are cut first; a result of the newest round may be ``NEWEST_WEIGHT`` times
    longer. The newest images stay, at most ``MAX_IMAGES`` and in at most half of the room. The texts of the model and
    the posts of #maestro stay whole and in their order, so that a provider can cache the beginning of the prompt.
    """
    room -= sum(_tokens_without_results(tool_round) for tool_round in rounds)
    results = [result for tool_round in rounds for result in tool_round.results]
    weights = [NEWEST_WEIGHT if tool_round is rounds[-1] else 1 for tool_round in rounds for _ in tool_round.results]
    images = _newest_images([result.images for result in results], min(MAX_IMAGES, room // 2 // IMAGE_TOKENS))
    room -= IMAGE_TOKENS * sum(map(len, images))
    sizes = [estimate_tokens(result.text) for result in results]
    texts = map(_cut_result, (result.text for result in results), _divide_room(sizes, weights, max(0, room)))
    fitting = map(ToolResult, texts, images)
    return tuple(
        message
        for tool_round in rounds
        for message in _round_messages(tool_round, list(islice(fitting, len(tool_round.results))))
    )


def drop_tool_calls(messages: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
    """Return the messages for a model that cannot call tools: tool calls and results become plain text."""
    return tuple(remove_tool_parts(message) for message in messages)


def drop_image_content(messages: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
    """Return the messages for a model that accepts no images in tool results: these images are left out."""
    return tuple(
        message.model_copy(update={"images": ()}) if message.role is Role.TOOL and message.images else message
        for message in messages
    )


def remove_tool_parts(message: PromptMessage) -> PromptMessage:
    if message.role is Role.TOOL:
        text = f"[Result of {message.tool}]\n{message.content}"
        return message.model_copy(update={"role": Role.USER, "content": text, "call_id": "", "tool": ""})
    if message.tool_calls:
        names = ", ".join(call.name for call in message.tool_calls)
        text = "\n".join(filter(None, (message.content, f"[Asked for {names}]")))
        return message.model_copy(update={"content": text, "tool_calls": ()})
    return message


def _tokens_without_results(tool_round: ToolRound) -> int:
    calls = sum(
        estimate_tokens(call.name) + estimate_tokens(call.arguments) + 2 * MESSAGE_OVERHEAD for call in tool_round.calls
    )
    chat = MESSAGE_OVERHEAD + estimate_tokens(tool_round.chat) if tool_round.chat else 0
    return MESSAGE_OVERHEAD + estimate_tokens(tool_round.content) + calls + chat


def _divide_room(sizes: Sequence[int], weights: Sequence[int], room: int) -> list[int]:
    """Divide ``room`` tokens by weight; what a short result does not need goes to the longer ones."""
    shares, weight_left = [0] * len(sizes), sum(weights)
    for index in sorted(range(len(sizes)), key=lambda index: sizes[index] / weights[index]):
        shares[index] = min(sizes[index], room * weights[index] // weight_left)
        room -= shares[index]
        weight_left -= weights[index]
    return shares


def _newest_images(images: Sequence[tuple[ImageRef, ...]], most: int) -> list[tuple[ImageRef, ...]]:
    """Return the images of each result, limited to the newest ``most`` images of all results."""
    newest_first = []
    for result_images in reversed(images):
        newest_first.append(result_images[: max(0, most)])
        most -= len(newest_first[-1])
    return newest_first[::-1]


def _cut_result(result: str, tokens: int) -> str:
    if estimate_tokens(result) <= tokens:
        return result
    room = tokens - estimate_tokens(CUT_MARK)
    return cut_to_tokens(result, room) + CUT_MARK if room >= SHORTEST_RESULT else LEFT_OUT


def _round_messages(tool_round: ToolRound, results: Sequence[ToolResult]) -> Iterator[PromptMessage]:
    if tool_round.chat:
        yield PromptMessage(role=Role.USER, content=tool_round.chat, chat=True)
    yield PromptMessage(role=Role.ASSISTANT, content=tool_round.content, tool_calls=tool_round.calls)
    for call, result in zip(tool_round.calls, results, strict=True):
        yield PromptMessage(role=Role.TOOL, content=result.text, images=result.images, call_id=call.id, tool=call.name)


def redact_messages(messages: Sequence[PromptMessage], redact: Redact) -> tuple[PromptMessage, ...]:
    """Return the messages of a prompt with their secrets redacted.

    A changed message loses its ``message_id``, because its text differs from the stored message.
    """
    return tuple(_redact_message(message, redact) for message in messages)


def _redact_message(message: PromptMessage, redact: Redact) -> PromptMessage:
    calls = tuple(call.model_copy(update={"arguments": redact(call.arguments)}) for call in message.tool_calls)
    content = redact(message.content)
    if content == message.content and calls == message.tool_calls:
        return message
    stable = message.stable if content[: message.stable] == message.content[: message.stable] else 0
    return message.model_copy(update={"content": content, "tool_calls": calls, "message_id": None, "stable": stable})
