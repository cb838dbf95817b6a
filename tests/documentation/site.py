"""Builds the documentation as a site, with every warning as an error and without the network: ``make docs``.

Sphinx reads CommonMark through MyST, as GitHub does, so that one text serves both. The site has the layout of the
repository, so that links between README, docs and examples open in both.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
NAVIGATION: Mapping[str, Sequence[str]] = {
    "Begin": ("docs/start", "docs/architecture", "docs/README"),
    "Run it": (
        "docs/operations",
        "docs/howto/run-with-docker-compose",
        "docs/howto/run-with-systemd",
        "docs/howto/run-on-several-machines",
        "docs/howto/use-temporal-cloud",
        "docs/howto/run-on-kubernetes",
        "docs/howto/monitor",
        "docs/howto/trace-a-message",
        "docs/howto/troubleshoot",
        "docs/howto/replay-jobs",
        "docs/howto/back-up-and-restore",
        "docs/howto/upgrade",
        "docs/howto/upgrade-without-downtime",
        "docs/howto/change-settings-while-running",
    ),
    "Connect": (
        "docs/howto/connect-*",
        "docs/howto/add-a-connector",
        "examples/*/README",
        "docs/howto/stream-answers",
        "docs/howto/talk-from-a-terminal",
        "docs/howto/receive-webhooks",
    ),
    "Security": (
        "docs/security",
        "docs/howto/control-access",
        "docs/howto/grant-read-only-access",
        "docs/howto/redact-secrets",
        "docs/howto/encrypt-payloads",
        "SECURITY",
    ),
    "Agents, models and load": ("docs/howto/manage-*", "docs/howto/*"),
    "Reference": ("docs/configuration", "docs/reference/*", "docs/pictures/README", "docs/glossary"),
    "Reasons": (
        "docs/proof*",
        "benchmarks/RESULTS",
        "benchmarks/*",
        "docs/comparison",
        "docs/invariants",
        "docs/decisions",
    ),
    "Project": ("CONTRIBUTING", "CHANGELOG", "docs/licences"),
}
"""The sections of the navigation; each page stands in the first one whose patterns name it."""
BELOW = {"docs/decisions": ("Records", "docs/adr/*")}
"""Pages with others below them in the navigation: the heading of their list, and their pattern."""
SETTINGS = {
    "project": "Maestro",
    "html_title": "Maestro",
    "root_doc": "README",
    "extensions": ["myst_parser"],
    "html_theme": "furo",
    "html_copy_source": False,
    "html_show_copyright": False,
    "myst_heading_anchors": 6,
    "myst_links_external_new_tab": False,
}

_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")


def files_of_site() -> frozenset[Path]:
    """Return the pages of the project and all of docs, with the files to which they link, directly or not."""
    waiting = [*ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found and path.is_file():
            found.add(path)
            waiting += linked_files(path)
    return frozenset(found)


def linked_files(page: Path) -> Iterator[Path]:
    """Yield the files to which a page links; files of other kinds link to none."""
    if page.suffix == ".md":
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        yield from ((page.parent / link).resolve() for link in _LINK.findall(text))


def navigation(pages: Sequence[Path]) -> str:
    """Return the navigation of these pages, relative to the root of the project, as the end of the first page."""
    left = {page.with_suffix("") for page in pages} - {Path("README"), *chain(*map(partial(below, pages), BELOW))}
    parts = []
    for title, patterns in NAVIGATION.items():
        named = [page for pattern in patterns for page in sorted(left) if page.match(pattern)]
        found = list(dict.fromkeys(named))
        left -= set(found)
        parts.append(tree_of(found, "hidden", f"caption: {title}"))
    return "".join(parts)


def below(pages: Sequence[Path], parent: str) -> Sequence[Path]:
    """Return the pages that are below another one in the navigation."""
    return sorted(page.with_suffix("") for page in pages if page.with_suffix("").match(BELOW[parent][1]))


def tree_of(pages: Sequence[Path], *options: str) -> str:
    """Return the directive that puts pages into the navigation; with a slash, their paths begin at the root."""
    head = "".join(f":{option}:\n" if ":" not in option else f":{option}\n" for option in options)
    return f"\n```{{toctree}}\n{head}\n" + "".join(f"/{page}\n" for page in pages) + "```\n"


def collect(source: Path, root: Path, files: Sequence[Path]) -> None:
    """Copy the files of a site to a folder, with their layout and the navigation."""
    for path in files:
        target = source / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    pages = [path.relative_to(root) for path in files if path.suffix == ".md"]
    ends = {"README": navigation(pages)}
    for parent, (heading, _) in BELOW.items():
        if found := below(pages, parent):
            ends[parent] = f"\n## {heading}\n{tree_of(found, 'maxdepth: 1')}"
    for page, end in ends.items():
        with (source / f"{page}.md").open("a", encoding="utf-8") as file:
            file.write(end)


def build(site: Path, root: Path, files: Sequence[Path]) -> int:
    """Build a site of these files; return 0 if there was nothing to warn of."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        collect(source, root, files)
        settings = "\n".join(f"{name} = {value!r}" for name, value in SETTINGS.items())
        (source / "conf.py").write_text(settings, encoding="utf-8")
        doctrees = str(source / ".doctrees")
        strict = [
            "--quiet",
            "--fail-on-warning",
            "--keep-going",
            "--nitpicky",
            "--fresh-env",
            "--doctree-dir",
            doctrees,
        ]
        return build_main([*strict, "--builder", "html", folder, str(site)])


if __name__ == "__main__":
    shutil.rmtree(SITE, ignore_errors=True)
    sys.exit(build(SITE, ROOT, sorted(files_of_site())))
