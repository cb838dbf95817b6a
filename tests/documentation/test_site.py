"""The site builds without a warning and without the network, and a broken link fails its build."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation.site import ROOT, collect, files_of_site

pytestmark = pytest.mark.xdist_group("documentation-site")

LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?(https?:[^\"'\s>]+)", re.IGNORECASE)
OF_PAGE = """
import sys
from pathlib import Path
from tests.documentation.site import build
root = Path(sys.argv[1])
sys.exit(build(root / "site", root, [root / "README.md"]))
"""
BROKEN = ("[x](no.md)", "[x](#nothing)", "[x](path:no.txt)", '```json\n{"a": nothing}\n```', "### Too deep")
"""Parts of a page: links to no page, no heading and no file, no JSON, and a heading without the one above."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site of the project, in a process of its own: Sphinx changes what others in a process see."""
    folder = tmp_path_factory.mktemp("site")
    code = "import sys; from pathlib import Path; from tests.documentation.site import *; "
    code += "sys.exit(build(Path(sys.argv[1]), ROOT, sorted(files_of_site())))"
    built = subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT).with_suffix(".html") for path in files_of_site() if path.suffix == ".md"}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    assert (site / "searchindex.js").stat().st_size > 100_000


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    assert {found for page in pages for found in LOADED.findall(page.read_text(encoding="utf-8"))} == set()


def test_every_page_stands_in_the_navigation_once(tmp_path: Path) -> None:
    files = sorted(files_of_site())
    collect(tmp_path, ROOT, files)
    pages = [str(path.relative_to(ROOT).with_suffix("")) for path in files if path.suffix == ".md"]
    ends = [(tmp_path / f"{page}.md").read_text()[len((ROOT / f"{page}.md").read_text()) :] for page in pages]
    assert sorted(re.findall(r"^/(\S+)$", "".join(ends), re.MULTILINE)) == sorted({*pages} - {"README"})


def test_each_broken_part_of_a_page_is_named_and_fails_the_build(tmp_path: Path) -> None:
    page = "\n\n".join(["# Page", *BROKEN, ""])
    (tmp_path / "README.md").write_text(page)
    command = [sys.executable, "-c", OF_PAGE, str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    named = {int(line) for line in re.findall(r"README\.md:(\d+): WARNING", built.stderr)}
    assert built.returncode != 0
    assert named == {page[: page.index(part)].count("\n") + 1 for part in BROKEN}, built.stderr
