"""What people may see of an answer while it is written: nothing that may turn out to be a tag, or what one holds."""

import re

from maestro.domain.tags.grammar import TagName, parse

_BEGINNINGS = "|".join(
    sorted({name[:length] for name in TagName for length in range(len(name))}, key=len, reverse=True)
)
_UNFINISHED = re.compile(rf"\[/?(?:{_BEGINNINGS})(?:\Z|\[)", re.IGNORECASE | re.ASCII)
"""A bracket that may become a tag with the next letters, or because a tag in it goes."""
_OPENING = re.compile(
    rf"\[/?({'|'.join(TagName)})(?=[:\]\s]|\Z)(?!(?-i:(?<=[a-z]))[^\S\n]+[^\s:\[\]])", re.IGNORECASE | re.ASCII
)
"""A tag, but for a plain word in small letters that other words follow: people do write ``[state your name]``."""
_CODE_OR_QUOTE = re.compile(r"`|~~~|^[^\S\n]*+(?:(?:[-*+]|\d{1,9}[.)])[^\S\n]*+)*+>", re.MULTILINE)
_LONE_MARK = re.compile(r"(?:^|\n)(?:[^\S\n]*(?:[-*+>]|\d{1,9}[.)]))+\Z")
"""A line at the end on which only the mark of a list stands: it goes with a tag that may follow."""


def visible_so_far(written: str) -> str:
    """Return what may be shown of the beginning of an answer, without blanks at its end.

    Every text can be read. It ends before the first tag that nothing closes yet, so that what it holds is never seen;
    beside code and quotations, in which a tag may be something else than it seems, it ends before the first one.
    """
    end = _settled(written)
    return _LONE_MARK.sub("", parse(written[:end]).visible.rstrip())


def _settled(written: str) -> int:
    """Return up to where nothing that follows can make a tag of what is there, or something else of a tag."""
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
