"""What is left of a text when parts of it are taken out: no doubled blanks, no empty lines where only they stood."""

import re
from itertools import groupby
from operator import itemgetter

_BLANKS = " \t\r\f\v"
_CLINGING = tuple(",.;:!?)]}…»”’，。；：！？、）】」』")
_MARKER = re.compile(r"\s*(?:[-*+>]|\d{1,9}[.)])")
_BACKTICKS = re.compile("`+")
_MANY_BREAKS = re.compile(r"\n{3,}")


class VisibleText:
    """Takes a text piece by piece, from the left, with ``cut`` where something was taken out.

    What stood on both sides of a cut is joined by one blank, or by nothing before a stop. A line that held nothing
    else, the mark of a list or a quotation apart, goes altogether. More than one empty line becomes one. Code stays
    as it is.
    """

    def __init__(self) -> None:
        self._pieces: list[tuple[bool, str]] = []
        self._line = 0
        self._cut = False
        self.is_changed = False

    def cut(self) -> None:
        """Say that something is missing here."""
        self._cut = self.is_changed = True

    def show(self, tag: str) -> None:
        """Take a tag that is shown as code: within its line, or as a block where it has several lines."""
        self.is_changed = True
        is_block = "\n" in tag
        longest = max(map(len, _BACKTICKS.findall(tag)), default=0)
        fence = "`" * max(longest + 1, 3 if is_block else 1)
        if is_block:
            self.write("\n")
            self.write_code(f"{fence}\n{tag}\n{fence}")
            self.write("\n")
        else:
            self.write_code(f"{fence} {tag} {fence}" if longest else f"{fence}{tag}{fence}")

    def write(self, text: str) -> None:
        """Take text that is no code."""
        if self._cut:
            text = text.lstrip(_BLANKS)
            if not text:
                return
            text = self._join(text)
        head, newline, tail = text.rpartition("\n")
        if newline:
            self._pieces.append((False, head + newline))
            self._line = len(self._pieces)
        if tail:
            self._pieces.append((False, tail))

    def write_code(self, code: str) -> None:
        """Take code, which nothing is taken out of."""
        if self._cut:
            self._join(code)
        self._pieces.append((True, code))

    def finished(self) -> str:
        """Return what is left."""
        parts: list[str] = []
        for is_code, pieces in groupby(self._pieces, itemgetter(0)):
            text = "".join(piece for _, piece in pieces)
            parts.append(text if is_code else _MANY_BREAKS.sub("\n\n", text))
        return "".join(parts).strip()

    def _join(self, following: str) -> str:
        """Close a cut: return what is left of the text that follows."""
        self._cut = False
        if following.startswith("\n"):
            self._trim()
            if self._is_empty():
                del self._pieces[self._line :]
                return following[1:]
        elif any(not self._pieces[number][1].isspace() for number in reversed(range(self._line, len(self._pieces)))):
            self._trim()
            self._pieces.append((False, "" if following.startswith(_CLINGING) else " "))
        return following

    def _trim(self) -> None:
        """Take the blanks from the end of the present line."""
        while len(self._pieces) > self._line and not self._pieces[-1][0]:
            rest = self._pieces.pop()[1].rstrip(_BLANKS)
            if rest:
                self._pieces.append((False, rest))
                return

    def _is_empty(self) -> bool:
        """Say whether nothing but the mark of a list or a quotation stands on the present line."""
        pieces = len(self._pieces) - self._line
        return pieces == 0 or (pieces == 1 and _MARKER.fullmatch(self._pieces[-1][1]) is not None)
