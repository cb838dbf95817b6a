"""The fenced blocks of the pages, with what a page says about running them.

A block of commands has the language ``sh`` and is run by ``test_commands.py``. Comments right above it, which are not
shown on the page, prepare it or except it:

* ``<!-- given: FAILED=... -->`` is run before it; each NAME that is assigned there replaces that word in the block
* ``<!-- not run: it needs a cluster -->`` excepts the block, with the reason
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = tuple(
    path.relative_to(ROOT).as_posix()
    for path in sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/*.md")})
    if path.name != "CHANGELOG.md"
)
LANGUAGES = ("sh", "text", "json", "yaml", "toml", "python", "markdown")

_FENCE = re.compile(r"((?: *<!-- (?:given|not run): (?:.|\n)*? -->\n)*)^( *)```(.*)\n((?:.|\n)*?)^ *```$", re.MULTILINE)
_NOTE = re.compile(r"<!-- (given|not run): ((?:.|\n)*?) -->")
_ASSIGNED = re.compile(r"^\s*([A-Z_]+)=", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page and line, its language, and its text without the indentation of the fence."""

    page: str
    line: int
    language: str
    text: str
    given: str = ""
    exempt: str = ""

    @property
    def place(self) -> str:
        """The page and line, as a message names them."""
        return f"{self.page}:{self.line}"

    @property
    def names(self) -> list[str]:
        """The words of the block that the preparation replaces, the longest first."""
        return sorted(_ASSIGNED.findall(self.given), key=len, reverse=True)


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """Yield the blocks of a page in their order."""
    for match in _FENCE.finditer(text):
        notes = dict(_NOTE.findall(match[1]))
        line = text.count("\n", 0, match.start(2)) + 1
        body = "".join(row.removeprefix(match[2]) for row in match[4].splitlines(keepends=True))
        yield Block(page, line, match[3], body, notes.get("given", ""), " ".join(notes.get("not run", "").split()))


def blocks() -> list[Block]:
    """Return the blocks of all pages."""
    return [block for page in PAGES for block in blocks_of(page, (ROOT / page).read_text(encoding="utf-8"))]
