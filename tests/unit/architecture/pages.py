"""The pages of the documentation as the rules see them: their headings, and what refers to them."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tests.unit.architecture.source import ROOT, Finding, Source

FOLDERS = (
    "activities",
    "api",
    "benchmarks",
    "connectors",
    "deploy",
    "docs",
    "examples",
    "maestro",
    "scripts",
    "temporal",
    "tests",
    "workflows",
)
KINDS = frozenset({".py", ".md", ".html", ".toml", ".yml", ".json"})

# What a recorded history holds is data; the rules below would find their own examples.
EXEMPT = ("tests/histories/", "tests/unit/test_docs.py", "api/dashboard/static/vendor/")

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
_SECTION = re.compile(r"^## (.+?)\s*$", re.MULTILINE)
_PAGE = re.compile(r"\bdocs/((?:[\w-]+/)*[\w-]+\.md)(?::\s+([a-z][^.;:()`\"{}]*))?")
_RECORD = re.compile(r"\b(?:ADRs? |docs/adr/)(\d+)(?:(?:,| and) (\d+))?")
_LINK = re.compile(r"\]\(([^)\s]*)\)")
_TEST = re.compile(r"`(tests/[\w/]+\.py)`")
_BREAK = re.compile(r"\s*\n\s*(?:# )?")
_NUMBERED = re.compile(
    r"\b(?:decisions?|invariants?)\s+\d|\bspecifications?\s+00\d|\bdesign\s+(?:section|decision|invariant)\b"
    r"|\((?:section|step|00\d,)\s+(?:step\s+)?\d|\bsteps?\s+\d+(?:\s+\w+\s+\d+)?\s+of\s+a\s+message",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Documentation:
    """The pages of ``docs`` by their path below it, with the names of all files of the project that links may open."""

    pages: dict[str, str]
    exists: Callable[[str], bool]

    @classmethod
    def of_project(cls) -> "Documentation":
        """Read the pages of the project."""
        docs = ROOT / "docs"
        pages = {path.relative_to(docs).as_posix(): path.read_text(encoding="utf-8") for path in docs.rglob("*.md")}
        return cls(pages, lambda path: (ROOT / path).exists())

    @cached_property
    def headings(self) -> dict[str, frozenset[str]]:
        """The headings of each page, in lower case."""
        return {path: frozenset(map(str.lower, headings(text))) for path, text in self.pages.items()}

    @cached_property
    def records(self) -> frozenset[int]:
        """The numbers of the decision records."""
        return frozenset(int(path[4:8]) for path in self.pages if re.match(r"adr/\d{4}-", path))

    def references_open(self, source: Source) -> Iterator[Finding]:
        """What is written as ``docs/<page>.md: heading`` or ``ADR 7`` is a page, a heading on it, or a record."""
        for match in _PAGE.finditer(source.text):
            page, named = match[1], match[2]
            if page not in self.pages:
                yield at(source, match, f"there is no page docs/{page}")
                continue
            names = _BREAK.sub(" ", named).strip().split(", ") if named else []
            missing = [name for name in names if name not in self.headings[page]]
            yield from (at(source, match, f"docs/{page} has no heading {name!r}") for name in missing)
        for match in _RECORD.finditer(source.text):
            absent = [number for number in match.groups() if number and int(number) not in self.records]
            yield from (at(source, match, f"there is no ADR {number}") for number in absent)

    def links_open(self, source: Source) -> Iterator[Finding]:
        """A link of a page opens: its file exists, and its anchor is a heading of it."""
        folder = source.path.rpartition("/")[0]
        for match in _LINK.finditer(_FENCE.sub("", source.text)):
            path, _, anchor = match[1].partition("#")
            if ":" in path:
                continue
            target = resolved(folder, path) if path else source.path
            page = self.pages.get(target.removeprefix("docs/")) if target.startswith("docs/") else None
            if not path:
                page = source.text
            if not self.exists(target):
                yield Finding(source.path, 1, f"there is no {target}")
            elif anchor and page is not None and anchor not in map(anchor_of, headings(page)):
                yield Finding(source.path, 1, f"{target} has no heading {anchor!r}")

    def tests_exist(self, source: Source) -> Iterator[Finding]:
        """A test that a page names exists."""
        for match in _TEST.finditer(source.text):
            if not self.exists(match[1]):
                yield at(source, match, f"there is no {match[1]}")


def no_numbers_of_other_pages(source: Source) -> Iterator[Finding]:
    """Nothing refers to a number of a decision, an invariant, a section or a step: name a heading of docs instead."""
    return (at(source, match, f"{match[0]!r} opens nothing") for match in _NUMBERED.finditer(source.text))


def no_section_twice(source: Source) -> Iterator[Finding]:
    """A page has each of its sections once."""
    sections = Counter(_SECTION.findall(_FENCE.sub("", source.text)))
    return (Finding(source.path, 1, f"the section {name!r} is there twice") for name in sections if sections[name] > 1)


def at(source: Source, match: re.Match[str], message: str) -> Finding:
    """Say what is wrong with a match."""
    return Finding(source.path, source.text.count("\n", 0, match.start()) + 1, message)


def headings(text: str) -> list[str]:
    """Return the headings of a page in their order."""
    return _HEADING.findall(_FENCE.sub("", text))


def anchor_of(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def resolved(folder: str, path: str) -> str:
    """Return the path from the root of the project that a link of a page in this folder means."""
    return (ROOT / folder / path).resolve().relative_to(ROOT).as_posix()


def texts() -> tuple[Source, ...]:
    """Read what may refer to a page: code, tests, templates, scripts, settings and pages, but not the changelog."""
    below = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    paths = sorted({*below, *ROOT.glob("*.md"), *ROOT.glob("*.toml")} - {ROOT / "CHANGELOG.md"})
    files = ((path.relative_to(ROOT).as_posix(), path) for path in paths if path.suffix in KINDS and path.is_file())
    return tuple(Source(name, path.read_text(encoding="utf-8")) for name, path in files if not name.startswith(EXEMPT))
