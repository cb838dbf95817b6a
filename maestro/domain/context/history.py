"""What was said, as the turns of a prompt."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from maestro.domain.conversations.conversation import Line, Said
from maestro.domain.llm.prompts import ComposedTurn, Role
from maestro.domain.llm.tokens import IMAGE_TOKENS, MESSAGE_OVERHEAD, estimate, shorten
from maestro.domain.media import MAX_IMAGES, MediaFile, prompt_text
from maestro.domain.quoting import quoted_lines

_POSES = re.compile(r"\[\s*agent\b", re.IGNORECASE)
"""How the line begins under which another agent's words stand; see ``persona.said_by``."""


class Utterance(NamedTuple):
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
    def of(cls, message: Line, files: Sequence[MediaFile] = (), author: str = "") -> "Utterance":
        """Return what a stored message says."""
        number, role, content, tokens, *_, plain_chars = message
        return cls(role, content, tokens, number, tuple(files), author, plain_chars)


class Shown(NamedTuple):
    """An utterance as the model sees it, what that takes in tokens and characters, and how many were left out of it."""

    turn: ComposedTurn
    tokens: int
    characters: int
    left_out: int = 0


def show_asked(asked: Sequence[Utterance], room: int) -> tuple[Shown, ...]:
    """Return what is to be answered, oldest first: all of it, whole where there is room.

    Where there is not, the longest give way first: of those the beginning and the end are shown, with a mark between.
    Images go along newest first, at most ten in all and only where they fit; every other file is named in the text.
    """
    left = room
    named = [_named(one) for one in asked]
    texts: dict[int, Shown] = {}
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


def select_history(newest_first: Sequence[Utterance], room: int, images: int = MAX_IMAGES) -> tuple[Shown, ...]:
    """Return what was said before and fits, oldest first.

    The first utterance that does not fit ends the selection, so that the history has no holes. It begins with what a
    person said: an answer whose question is gone says little, and some providers refuse a history that begins with it.
    """
    chosen: list[Shown] = []
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


def plain_chars(message: Said) -> int | None:
    """Return how many characters a message has whose text is shown just as it is stored, None for any other.

    It is kept with the message (``Message.plain_chars``), so that its text need not be read.
    """
    text = message.content
    if message.agent_id is not None or message.has_files or (message.role is Role.USER and _POSES.search(text)):
        return None
    return len(text)


def _a_person(utterance: Utterance) -> bool:
    return utterance.role is Role.USER and not utterance.author


def _named(utterance: Utterance) -> Shown:
    """Show an utterance with its files by name only."""
    return _shown(utterance, ())


def _pictured(utterance: Utterance, room: int, images: int) -> Shown:
    """Show an utterance with as many of its pictures as may go along and fit."""
    pictures = [file for file in utterance.files if file.is_picture] if utterance.files else ()
    if not pictures:
        return _shown(utterance, ())
    affordable = max(0, min(images, (room - _named(utterance).tokens) // IMAGE_TOKENS))
    return _shown(utterance, pictures[:affordable])


def _shown(utterance: Utterance, pictures: Sequence[MediaFile]) -> Shown:
    role, content, tokens, message_id, _, author, plain_chars, _ = utterance
    if plain_chars is not None:
        return Shown(ComposedTurn(role, "", message_id=message_id), MESSAGE_OVERHEAD + tokens, plain_chars)
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
    return Shown(turn, MESSAGE_OVERHEAD + tokens + IMAGE_TOKENS * len(pictures), len(text))


def _text(utterance: Utterance, pictures: Sequence[MediaFile]) -> str:
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


def _within(shown: Shown, room: int) -> Shown:
    """Return the same within so many tokens."""
    if shown.tokens <= room:
        return shown
    text, left_out = shorten(shown.turn.content, room - MESSAGE_OVERHEAD)
    turn = shown.turn._replace(content=text, message_id=None)
    return Shown(turn, MESSAGE_OVERHEAD + estimate(text), len(text), left_out)
