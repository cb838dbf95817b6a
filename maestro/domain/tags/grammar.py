"""The grammar of tags in complete answers and in answers still being written (docs/decisions.md: tags)."""

import re
import textwrap
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple

from maestro.domain.tags.markdown import CodeSpan, VisibleText, code_spans


class TagName(StrEnum):
    """The names of all tags."""

    MEMORY = "MEMORY"
    STATE = "STATE"
    DELEGATE = "DELEGATE"
    CREATE_AGENT = "CREATE_AGENT"
    UPDATE_AGENT = "UPDATE_AGENT"
    CREATE_CRON = "CREATE_CRON"
    CREATE_HEARTBEAT = "CREATE_HEARTBEAT"
    CREATE_CLIENT = "CREATE_CLIENT"


CONDUCTOR_TAGS = frozenset(TagName) - {TagName.MEMORY, TagName.STATE, TagName.DELEGATE}
"""The tags that are executed only in a conductor's answer."""

LINE_TAGS = frozenset({TagName.MEMORY, TagName.STATE})
"""The tags that end with their line if they have no closing tag; all others are blocks."""

KEYED_TAGS = LINE_TAGS | {TagName.DELEGATE, TagName.UPDATE_AGENT}
"""The tags that need a key; the other tags have none."""

_START = re.compile(rf"\[(/?)({'|'.join(TagName)})(?=[:\]\s]|\Z)", re.IGNORECASE | re.ASCII)
_QUOTATION = re.compile(r"^[^\S\n]*+(?:(?:[-*+]|\d{1,9}[.)])[^\S\n]++)*+>[^\n]*(?:\n[^\S\n]*+>[^\n]*)*+", re.MULTILINE)
_TOKEN = re.compile(rf"{_START.pattern}([^\[\]\n]*)(\]?)", _START.flags)


@dataclass(frozen=True)
class Tag:
    """One tag of an answer: its key (category, key or slug, as written), the words after the key, and its body.

    The body has no surrounding white space and no common indentation. ``complete`` is false for a block without a
    closing tag and for an invalid key: the tag is reported and not executed. ``quoted`` means that the tag repeats text
    that the agent was given to read: it is shown as code, reported and not executed.
    """

    name: TagName
    key: str
    options: tuple[str, ...]
    body: str
    complete: bool
    quoted: bool = False


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer as users see it, without tags, and its tags in the order in which they were written."""

    visible: str
    tags: tuple[Tag, ...]


class _Token(NamedTuple):
    """An opening or closing tag; ``valid``: its key has the right form; ``exact``: no blank precedes the key."""

    start: int
    end: int
    name: TagName
    closing: bool
    words: tuple[str, ...] = ()
    valid: bool = False
    exact: bool = False


class _Extent(NamedTuple):
    """The end of a tag's body, the end of the tag itself, and whether the tag is complete."""

    body_end: int
    end: int
    complete: bool


_Mark = CodeSpan | _Token


def parse_answer(answer: str, is_quotation: Callable[[Tag], bool] = lambda _: False) -> ParsedAnswer:
    """Return the tags of an answer and its text without them (docs/decisions.md: tags).

    ``[NAME:key options]`` opens a tag and ``[/NAME]`` closes it. Names are in any case. Keys consist of letters of any
    script, digits, ``-``, ``_`` and ``.``; a slug may begin with ``@``. In code (fenced blocks, inline spans) tags are
    plain text.

    Without a closing tag, MEMORY and STATE end with their line or before the next tag, and are complete. Other tags
    (blocks) then end with the answer or before the next tag, and are incomplete. A closed block may contain MEMORY and
    STATE tags as text; any other opening tag ends it. A closing tag in code counts only if there is none outside of
    code.

    An opening tag with an invalid key and without a closing tag is removed alone, and so is a closing tag without an
    opening tag. A tag in a Markdown quotation, also inside a list, is another author's: it is removed as far as the
    quotation goes and is not returned. A tag for which ``is_quotation`` returns true stays visible as code and is
    ``quoted``.

    Every text is accepted, the time grows about linearly with its length, and the visible text contains no tags when
    parsed again.
    """
    parsed = _parse_once(answer.strip(), is_quotation)
    # The removal of a tag, or of code marks, may form a new tag. Three passes remove all of them in real texts; of
    # any further tag, the opening bracket is replaced.
    visible = parsed.visible
    for _ in range(3):
        before, visible = visible, _parse_once(visible, lambda _: False).visible
        if visible == before:
            return replace(parsed, visible=visible)
    return replace(parsed, visible=_START.sub(lambda opening: "(" + opening[0][1:], visible))


def _parse_once(text: str, is_quotation: Callable[[Tag], bool]) -> ParsedAnswer:
    marks: list[_Mark] = sorted((*code_spans(text), *_tag_tokens(text)))
    tag_index, quotations = _TagIndex(text, marks), [CodeSpan(*lines.span()) for lines in _QUOTATION.finditer(text)]
    visible, tags, position, index = VisibleText(), list[Tag](), 0, 0
    while index < len(marks):
        mark = marks[index]
        visible.write_text(text[position : mark.start])
        position = mark.end
        if isinstance(mark, CodeSpan):
            visible.write_code(text[mark.start : mark.end])
        elif mark.closing:
            visible.mark_removal()
        elif (quotation := find_span(quotations, mark.start)) is not None:
            visible.mark_removal()
            end = tag_index.find_end(mark).end
            position = end if end <= quotation.end else mark.end
        else:
            extent = tag_index.find_end(mark)
            position = extent.end
            key, *options = mark.words or ("",)
            body = textwrap.dedent(text[mark.end : extent.body_end]).strip()
            tag = Tag(mark.name, key, tuple(options), body, extent.complete)
            tags.append(replace(tag, quoted=is_quotation(tag)))
            visible.write_tag(text[mark.start : position]) if tags[-1].quoted else visible.mark_removal()
        index = tag_index.first_mark(position)
    visible.write_text(text[position:])
    return ParsedAnswer(visible.build_text() if visible.is_changed else text.strip(), tuple(tags))


def find_span(spans: Sequence[CodeSpan], position: int) -> CodeSpan | None:
    """Return the span that contains the position, None without one."""
    number = bisect_right(spans, position, key=lambda span: span.start)
    return spans[number - 1] if number > 0 and position < spans[number - 1].end else None


class _TagIndex:
    """An index of the tags and code spans of a text, which finds the end of each tag."""

    def __init__(self, text: str, marks: Sequence[_Mark]) -> None:
        self._text = text
        self._marks = marks
        self._starts = [mark.start for mark in marks]
        self._tags = self._next_tokens(frozenset(TagName))
        self._blocks = self._next_tokens(frozenset(TagName) - LINE_TAGS)
        self._by_name: dict[TagName, list[_Token]] = {name: [] for name in TagName}
        for mark in marks:
            if isinstance(mark, _Token):
                self._by_name[mark.name].append(mark)

    def first_mark(self, position: int) -> int:
        """Return the index of the first mark (tag or code span) that begins at the position or later."""
        return bisect_left(self._starts, position)

    def find_end(self, token: _Token) -> _Extent:
        """Return where the body of an opening tag and the tag itself end."""
        in_line = token.name in LINE_TAGS
        following = self._next_token(self._tags, token.end)
        stop = following if in_line else self._next_token(self._blocks, token.end)
        if stop is None or not (stop.closing and stop.name is token.name):
            stop = self._closing_in_code(token, stop.start if stop else len(self._text))
        if stop is not None:
            return _Extent(stop.start, stop.end, token.valid)
        if not (token.valid and token.exact):
            return _Extent(token.end, token.end, False)
        end = following.start if following else len(self._text)
        if in_line:
            end = self._line_end(token, end)
        end = token.end + len(self._text[token.end : end].rstrip())
        return _Extent(end, end, in_line)

    def _closing_in_code(self, token: _Token, limit: int) -> _Token | None:
        """Return the closing tag that stands in code, None if another tag of the same name opens before it."""
        named = self._by_name[token.name]
        number = bisect_left(named, token.end, key=lambda other: other.start)
        nearest = named[number] if number < len(named) else None
        last = self._line_end(token, limit) if token.name in LINE_TAGS else limit
        return nearest if nearest and nearest.closing and nearest.start < last else None

    def _line_end(self, token: _Token, limit: int) -> int:
        end = self._text.find("\n", token.end, limit)
        return end if end >= 0 else limit

    def _next_token(self, firsts: Sequence[int], position: int) -> _Token | None:
        number = firsts[self.first_mark(position)]
        mark = self._marks[number] if number < len(self._marks) else None
        return mark if isinstance(mark, _Token) else None

    def _next_tokens(self, names: frozenset[TagName]) -> list[int]:
        """Return for each mark the index of the first token, at or after it, with one of the given names."""
        firsts = [len(self._marks)] * (len(self._marks) + 1)
        for number in reversed(range(len(self._marks))):
            mark = self._marks[number]
            is_named = isinstance(mark, _Token) and mark.name in names
            firsts[number] = number if is_named else firsts[self.first_mark(mark.end)]
        return firsts


def _tag_tokens(text: str) -> Iterator[_Token]:
    """Yield everything that is written like a tag, also in code.

    A name without a key, followed by other words, is a tag only in capitals or with an underscore, because users write
    ``[state your name]``. A tag without a closing bracket in its line ends with its key.
    """
    for match in _TOKEN.finditer(text):
        closing, written, rest, bracket = match.groups()
        name = TagName(written.upper())
        if closing:
            yield _Token(match.start(), match.end() if bracket else match.end(2), name, closing=True)
        elif rest.startswith(":") or (bracket and not rest.strip()) or written.isupper() or "_" in written:
            yield _opening_token(match, name, rest, bool(bracket))


def _opening_token(match: re.Match[str], name: TagName, rest: str, is_closed: bool) -> _Token:
    has_key = rest.startswith(":")
    words = tuple(rest.removeprefix(":").split())
    key = words[0] if words else ""
    slug = key if name in LINE_TAGS else key.removeprefix("@")
    if name in KEYED_TAGS:
        is_key = has_key and bool(slug) and all(map(_is_key_character, slug))
        valid = is_closed and is_key and (len(words) == 1 or name in (TagName.DELEGATE, TagName.MEMORY))
    else:
        valid = is_closed and not rest.strip()
    key_length = 1 + sum(1 for _ in takewhile(_is_key_character, rest[1:])) if has_key else 0
    end = match.end() if is_closed else match.end(2) + key_length
    return _Token(match.start(), end, name, False, words if is_closed else words[:1], valid, not rest[1:2].isspace())


def _is_key_character(character: str) -> bool:
    return character.isalnum() or character in "-_." or unicodedata.category(character).startswith("M")


_BEGINNINGS = "|".join(
    sorted({name[:length] for name in TagName for length in range(len(name))}, key=len, reverse=True)
)
_UNFINISHED = re.compile(rf"\[/?(?:{_BEGINNINGS})(?:\Z|\[)", re.IGNORECASE | re.ASCII)
"""A bracket that may become a tag when more letters follow or when a tag inside it is removed."""
_OPENING = re.compile(
    rf"\[/?({'|'.join(TagName)})(?=[:\]\s]|\Z)(?!(?-i:(?<=[a-z]))[^\S\n]+[^\s:\[\]])", re.IGNORECASE | re.ASCII
)
"""A tag, except a lower-case word that other words follow: users write ``[state your name]``."""
_CODE_OR_QUOTE = re.compile(r"`|~~~|^[^\S\n]*+(?:(?:[-*+]|\d{1,9}[.)])[^\S\n]*+)*+>", re.MULTILINE)
_LONE_MARK = re.compile(r"(?:^|\n)(?:[^\S\n]*(?:[-*+>]|\d{1,9}[.)]))+\Z")
"""A last line with only a list mark: it is removed together with a tag that may follow."""


def visible_so_far(written: str) -> str:
    """Return the visible part of an unfinished answer, without white space at its end.

    Every text is accepted. The result ends before the first tag that is not closed yet, so that a tag's body is never
    shown. If the text contains code or quotations, in which a tag may have another meaning, the result ends before the
    first tag.
    """
    return _LONE_MARK.sub("", parse_answer(written[: _stable_length(written)]).visible.rstrip())


def _stable_length(written: str) -> int:
    """Return the length of the beginning in which later text cannot add or change a tag."""
    unfinished = _UNFINISHED.search(written)
    limit = unfinished.start() if unfinished else len(written)
    code = _CODE_OR_QUOTE.search(written)
    position = 0
    while (opening := _OPENING.search(written, position)) is not None and opening.start() < limit:
        closing = re.compile(rf"\[/{opening[1]}\]", re.IGNORECASE).search(written, opening.end(), limit)
        if opening[0].startswith("[/") or closing is None or code is not None:
            return opening.start()
        if _OPENING.search(written, opening.end(), closing.start()):
            return opening.start()
        position = closing.end()
    return limit
