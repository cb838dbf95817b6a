"""Where a directive comes from: one that stands in what the model was given to read is a quotation."""

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator

from maestro.domain.tags.grammar import Tag, TagName

RUN = 5
"""Characters that are compared at a time; shorter runs are common to texts that have nothing to do with each other."""
SHORT = 8
"""Characters; a shorter value has too few runs to be compared by them, so it must be the same, and its key too."""

_CODE_POINT = re.compile(r"\\u([0-9a-fA-F]{4})")
_LINE_ESCAPE = re.compile(r"\\[nrt]")
_DROPPED = re.compile(r"[^\w\[\]/]|_")


def squeezed(texts: Iterable[str]) -> str:
    """Return texts as one, without what a model changes when it quotes: case, blanks, punctuation, markup, escapes.

    Letters, digits, brackets and slashes remain. The escapes are those of JSON and HTML, in which tools return texts.
    """
    return "".join(map(_squeezed, texts))


def is_quotation(tag: Tag, sources: str) -> bool:
    """Say whether a directive of an answer repeats one of the sources, which are ``squeezed``.

    A source holds a directive where it has an opening tag of the same name; what follows belongs to it, up to the next
    tag of that name. The directive of the answer is a quotation when at least half of its body, in runs of ``RUN``
    characters, belongs to directives of the sources, whatever the key says. So it remains one when the model closes
    it, leaves out lines, sorts them anew, changes a value, or joins pieces of several sources. A body of fewer than
    ``SHORT`` characters is a quotation when a directive of the sources begins with the same key and the same body.

    The body alone may stand in the sources: "remember that I like tea" is how people ask for a fact. The time grows
    with the length of the sources.
    """
    head, body = _squeezed(tag.key + "".join(tag.options)) + "]", _squeezed(tag.body)
    found = _directives(tag.name, sources, len(head) + len(body))
    if len(body) < SHORT:
        return any(text.startswith(head + body) for text in found)
    runs, known = _runs(body), set[str]().union(*map(_runs, found))
    return 2 * len(runs & known) >= len(runs)


def _directives(name: TagName, sources: str, longest: int) -> Iterator[str]:
    """Yield what follows each opening tag of this name; where none closes it, only ``longest`` characters."""
    marks = list(re.finditer(rf"\[(/?){_squeezed(name)}", sources))
    for number, mark in enumerate(marks):
        if mark[1]:
            continue
        following = marks[number + 1] if number + 1 < len(marks) else None
        end = following.start() if following else len(sources)
        is_closed = following is not None and bool(following[1])
        yield sources[mark.end() : end if is_closed else min(end, mark.end() + longest)]


def _runs(text: str) -> set[str]:
    return {text[start : start + RUN] for start in range(len(text) - RUN + 1)}


def _squeezed(text: str) -> str:
    plain = _CODE_POINT.sub(lambda escape: chr(int(escape[1], 16)), html.unescape(text))
    plain = unicodedata.normalize("NFKC", _LINE_ESCAPE.sub(" ", plain)).casefold()
    return _DROPPED.sub("", plain)
