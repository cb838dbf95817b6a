"""The documentation opens: what refers to a page, what a page refers to, and what the glossary names."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from tests.unit.architecture import pages
from tests.unit.architecture.pages import Documentation
from tests.unit.architecture.source import PACKAGES, ROOT, Finding, Rule, Source, read

pytestmark = pytest.mark.xdist_group("architecture")

MOST_TERMS = 100
GLOSSARY = "docs/glossary.md"

# What people search for; each is in a heading of the pages for operators and contributors.
SEARCHED = (
    "streaming",
    "idempotency",
    "rate limit",
    "cool-down",
    "circuit breaker",
    "dead letter",
    "retry",
    "approval",
    "roles",
    "audit log",
    "caching",
    "tracing",
    "compaction",
    "troubleshooting",
)

_NAME = re.compile(r"`(\w+)`")
_TABLE = re.compile(r"""__tablename__ = ["'](\w+)""")


@cache
def texts() -> tuple[Source, ...]:
    """Read everything that may refer to a page."""
    return pages.texts()


@cache
def project() -> Documentation:
    """Read the pages."""
    return Documentation.of_project()


SMALL = Documentation(
    {
        "rules.md": "# Rules\n\n## Lanes\n\n## No silent end\n\n```\n# no heading\n```\n",
        "adr/0007-speed.md": "# 7. Speed\n",
    },
    {"docs/rules.md", "docs/adr/0007-speed.md", "README.md", "tests/unit/test_x.py"}.__contains__,
)


def written(text: str, path: str = "maestro/example.py") -> Source:
    """Return a file with this text."""
    return Source(path, text)


def check(rule: Rule, sources: Iterable[Source]) -> None:
    """Fail with the rule and every breach of it."""
    findings = [finding for source in sources for finding in rule(source)]
    assert not findings, "\n".join([rule.__doc__ or "", *map(str, findings)])


# References


def test_references_open() -> None:
    check(project().references_open, texts())


@pytest.mark.parametrize(
    "text",
    [
        '"""Waits (docs/rule.md)."""',
        '"""Waits (docs/rules.md: roads)."""',
        '"""Waits (docs/rules.md: lanes, roads)."""',
        '"""Waits.\n\n    See docs/rules.md: no silent\n    beginning.\n    """',
        "# Waits (docs/rules.md: no\n# heading).",
        "# as ADR 8 says",
        "# as ADR 7 and 8 say",
        "# see docs/adr/0008",
        "# see docs/adr/0007-size.md",
    ],
)
def test_a_reference_that_does_not_open_is_found(text: str) -> None:
    assert len(list(SMALL.references_open(written(text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        '"""Waits (docs/rules.md: lanes, no silent end; ADR 7)."""',
        '"""Waits.\n\n    See docs/rules.md: no silent\n    end.\n    """',
        "# Waits (docs/rules.md: no\n# silent end).",
        "# docs/rules.md lists them; docs/adr/0007-speed.md says why",
    ],
)
def test_a_reference_that_opens_is_fine(text: str) -> None:
    assert list(SMALL.references_open(written(text))) == []


def test_no_number_of_another_page_is_left() -> None:
    check(pages.no_numbers_of_other_pages, texts())


@pytest.mark.parametrize(
    "text",
    [
        "(decision 19)",
        "Decisions 2 and 3",
        "(design invariant\n12)",
        "specification 003",
        "Design section 5, no silent end",
        "(003, step 10)",
        "(step 13)",
        "Step 4 of a message",
        "Steps 9 to 11 of a message",
    ],
)
def test_a_number_of_another_page_is_found(text: str) -> None:
    assert len(list(pages.no_numbers_of_other_pages(written(text)))) == 1


def test_links_of_pages_open() -> None:
    check(project().links_open, (source for source in texts() if source.path.endswith(".md")))


@pytest.mark.parametrize("link", ["rule.md", "rules.md#roads", "adr/0008.md", "#roads", "../LICENSE"])
def test_a_link_that_does_not_open_is_found(link: str) -> None:
    assert len(list(SMALL.links_open(written(f"# Page\n[x]({link})", "docs/rules.md")))) == 1


@pytest.mark.parametrize("link", ["rules.md#no-silent-end", "adr/0007-speed.md#7-speed", "#page", "https://a.b/c#d"])
def test_a_link_that_opens_is_fine(link: str) -> None:
    assert list(SMALL.links_open(written(f"# Page\n[x]({link})", "docs/rules.md"))) == []


def test_no_page_has_a_heading_twice() -> None:
    check(pages.no_section_twice, (source for source in texts() if source.path.endswith(".md")))


def test_a_heading_that_is_there_twice_is_found() -> None:
    page = "# Page\n## Soak\n### For users\n## Peers\n### For users\n## Soak\n"
    assert [str(finding) for finding in pages.no_section_twice(written(page, "docs/rules.md"))] == [
        str(Finding("docs/rules.md", 1, "the section 'Soak' is there twice"))
    ]


def test_tests_that_pages_name_exist() -> None:
    check(project().tests_exist, (source for source in texts() if source.path.startswith("docs/")))


def test_a_test_that_does_not_exist_is_found() -> None:
    assert len(list(SMALL.tests_exist(written("`tests/unit/test_x.py`, `tests/unit/test_y.py`", "docs/rules.md")))) == 1


@pytest.mark.parametrize("page", ["invariants.md", "decisions.md"])
def test_every_rule_names_its_test(page: str) -> None:
    parts = project().pages[page].split("\n## ")[1:]
    assert [part.partition("\n")[0] for part in parts if not re.search(r"^Tests?: `tests/", part, re.MULTILINE)] == []


# The glossary


@dataclass(frozen=True)
class Term:
    """A row of the glossary; ``names`` are the classes and tables that carry it."""

    name: str
    meaning: str
    names: tuple[str, ...]


def terms_of(text: str) -> list[Term]:
    """Return the rows of all tables of a page, without their heads."""
    rows = [line[2:].rstrip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [Term(row[0], row[1], tuple(_NAME.findall(row[2]))) for row in rows if row[0] != "term"]


def carriers(sources: Iterable[Source]) -> frozenset[str]:
    """Return the names of all classes and tables."""
    return frozenset(name for source in sources for name in _names(source))


def _names(source: Source) -> Iterator[str]:
    yield from (node.name for node in source.walk(ast.ClassDef))
    yield from _TABLE.findall(source.text)


def wrong_terms(terms: list[Term], names: frozenset[str]) -> Iterator[Finding]:
    """A term has a name of its own, one sentence, and a class or a table that exists."""
    for line, term in enumerate(terms, 1):
        if [other.name for other in terms].count(term.name) > 1:
            yield Finding(GLOSSARY, line, f"{term.name} is there twice")
        if not re.fullmatch(r"[A-Z`#/].*\.", term.meaning) or ". " in term.meaning:
            yield Finding(GLOSSARY, line, f"{term.name} has not one sentence")
        if not term.names:
            yield Finding(GLOSSARY, line, f"{term.name} names no class or table")
        missing = [name for name in term.names if name not in names]
        yield from (Finding(GLOSSARY, line, f"{term.name}: there is no class or table {name}") for name in missing)


def test_terms_of_the_glossary_are_carried() -> None:
    terms = terms_of(project().pages["glossary.md"])
    assert 0 < len(terms) <= MOST_TERMS
    findings = list(wrong_terms(terms, carriers(read(*PACKAGES))))
    assert not findings, "\n".join(map(str, findings))


@pytest.mark.parametrize(
    "row",
    [
        "| job | A unit of work. | `Task` |",
        "| job | A unit of work. |  |",
        "| job | A unit of work. It ends. | `Job` |",
        "| job | a unit of work | `Job` |",
        "| lane | The queue. | `Job` |\n| lane | The road. | `queue` |",
    ],
)
def test_a_wrong_term_is_found(row: str) -> None:
    source = Source("maestro/job.py", "class Job:\n    __tablename__ = 'queue'\n")
    assert list(wrong_terms(terms_of(row), carriers([source])))


def test_a_right_term_is_fine() -> None:
    source = Source("maestro/job.py", "class Job:\n    __tablename__ = 'queue'\n")
    row = "| term | meaning | carried by |\n|---|---|---|\n| job | A unit of work. | `Job`, `queue` |"
    assert list(wrong_terms(terms_of(row), carriers([source]))) == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    folders = ("adr/", "pictures/")
    assert [path for path in project().pages if not path.startswith(folders) and f"]({path}" not in index] == [
        "README.md"
    ]


def test_the_index_of_records_has_each_with_its_title_and_a_status() -> None:
    rows = [line.strip("| ").split(" | ") for line in project().pages["adr/README.md"].splitlines() if "| [" in line]
    heads = {
        path: text.partition("\n")[0] for path, text in sorted(project().pages.items()) if re.match(r"adr/\d", path)
    }
    titles = [(path, *head.removeprefix("# ").split(". ", 1)) for path, head in heads.items()]
    assert [row[:2] for row in rows] == [[f"[{number}]({path[4:]})", title] for path, number, title in titles] != []
    assert [row for row in rows if len(row) != 3 or not row[2]] == []


def without_heading(headings: Iterable[str], terms: Iterable[str]) -> list[str]:
    """Return the terms that no heading holds."""
    lines = "\n".join(headings)
    return [term for term in terms if term not in lines]


def test_what_people_search_for_is_a_heading() -> None:
    found = (heading for page, held in project().headings.items() if not page.startswith("adr/") for heading in held)
    assert without_heading(found, SEARCHED) == []


def test_a_term_without_a_heading_is_found() -> None:
    assert without_heading(["streaming: show answers", "the retry"], ["retry", "tracing"]) == ["tracing"]
