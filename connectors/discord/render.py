"""Markdown as Discord shows it: what it does not know is written in another way that reads well."""

import re
from collections.abc import Iterator, Sequence

FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
DEEP_HEADING = re.compile(r"[ \t]{0,3}#{4,6}[ \t]+(.+?)[ \t]*#*[ \t]*$")
IMAGE = re.compile(r"!(\[[^\]\n]*\]\([^)\s]+\))")
ROW = re.compile(r"[ \t]*\|.*\|[ \t]*$")
RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
TABLE_FENCE = "```"


def render(text: str) -> str:
    """Return Markdown for Discord: tables become code, deep headings bold, images links; code stays as it is."""
    return "\n".join(line for block in _blocks(text.split("\n")) for line in block)


def _blocks(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield what belongs together: code, tables, and every other line by itself."""
    at = 0
    while at < len(lines):
        end = _end_of_code(lines, at) or _end_of_table(lines, at)
        if end and FENCE.match(lines[at]):
            yield lines[at:end]
        elif end:
            yield [TABLE_FENCE, *(line.strip() for line in lines[at:end]), TABLE_FENCE]
        else:
            yield [_line(lines[at])]
        at = end or at + 1


def _end_of_code(lines: Sequence[str], start: int) -> int:
    """Return where a fence that opens here is closed, the end of the text where it is not; 0 for no fence."""
    opening = FENCE.match(lines[start])
    if opening is None:
        return 0
    marker = opening.group(1)
    for at in range(start + 1, len(lines)):
        line = lines[at].strip(" \t")
        if len(line) >= len(marker) and set(line) == {marker[0]}:
            return at + 1
    return len(lines)


def _end_of_table(lines: Sequence[str], start: int) -> int:
    """Return where a table that begins here ends; 0 for no table."""
    is_table = start + 1 < len(lines) and ROW.match(lines[start]) and "-" in lines[start + 1]
    if not is_table or not RULE.match(lines[start + 1]):
        return 0
    end = start + 2
    while end < len(lines) and ROW.match(lines[end]):
        end += 1
    return end


def _line(line: str) -> str:
    heading = DEEP_HEADING.match(line)
    return IMAGE.sub(r"\1", f"**{heading.group(1)}**" if heading else line)
