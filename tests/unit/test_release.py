"""A release: its numbers agree, its metadata is valid, its builds are equal, and what it ships is known and allowed."""

import os
import re
import tomllib
import zipfile
from email.parser import BytesParser
from io import BytesIO
from pathlib import Path

import pytest
import yaml
from packaging.metadata import Metadata

from scripts import inventory
from scripts.inventory import LOCKS, UnknownLicence, bill_of_materials, find_licence, is_allowed, licence_page
from scripts.release import build
from tests.unit.architecture.source import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MOMENT = 1_800_000_000


def test_every_place_names_the_same_release() -> None:
    version = PROJECT["version"]
    chart = yaml.safe_load((ROOT / "deploy/helm/maestro/Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (version, version)
    released = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert released[0] == version


def test_two_builds_are_equal_and_their_metadata_is_valid(tmp_path: Path) -> None:
    first, second = copied(tmp_path / "first"), copied(tmp_path / "second")
    for file in filter(Path.is_file, second.rglob("*")):
        file.chmod(0o600)
        os.utime(file, (MOMENT, MOMENT))
    built = build(first, MOMENT, "wheel")
    assert built == build(second, MOMENT, "wheel") != build(second, MOMENT + 60, "wheel")
    [(name, wheel)] = built.items()
    assert name == f"maestro_agents-{PROJECT['version']}-py3-none-any.whl"
    packed = zipfile.ZipFile(BytesIO(wheel))
    [member] = [each for each in packed.namelist() if each.endswith(".dist-info/METADATA")]
    described = Metadata.from_email(packed.read(member), validate=True)
    assert described.description_content_type == "text/markdown"
    assert BytesParser().parsebytes(packed.read(member))["License-File"] == "LICENSE"


def copied(folder: Path) -> Path:
    """Return a small source tree with the project's own description, as the whole takes seconds to pack."""
    (folder / "maestro").mkdir(parents=True)
    (folder / "maestro" / "__init__.py").write_text('"""Maestro."""\n')
    for name in ("pyproject.toml", "LICENSE"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


def test_links_of_the_long_description_lead_out_of_the_repository() -> None:
    targets = re.findall(r"\]\(([^)]*)\)", PROJECT["readme"]["text"])
    assert targets
    assert [target for target in targets if not target.startswith("https://")] == []


def test_the_page_of_licences_is_current() -> None:
    assert inventory.PAGE.read_text(encoding="utf-8") == licence_page(), "run: python -m scripts.inventory"


@pytest.mark.parametrize("part", LOCKS)
def test_no_licence_is_outside_of_the_allowed_ones(part: str) -> None:
    assert [package for package in inventory.pinned_packages(part) if not is_allowed(package.licence)] == []


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("AGPL-3.0-only", False),
        ("MIT OR GPL-2.0-only", True),
        ("MIT AND GPL-2.0-only", False),
        ("(MIT OR ISC) AND Apache-2.0", True),
        ("(MIT OR ISC) AND GPL-2.0-only", False),
        ("", False),
    ],
)
def test_a_licence_that_is_not_allowed_is_found(expression: str, allowed: bool) -> None:
    assert is_allowed(expression) is allowed


def test_a_package_whose_licence_is_unclear_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "STATED", {})
    find_licence.cache_clear()
    for name in ("jinja2", "not-installed"):
        with pytest.raises(UnknownLicence, match=name):
            find_licence(name)


@pytest.mark.parametrize("part", LOCKS)
def test_the_bill_of_materials_names_every_package_once_and_is_reproducible(part: str) -> None:
    bill = bill_of_materials(part, "a" * 40, MOMENT)
    assert bill == bill_of_materials(part, "a" * 40, MOMENT)
    assert bill["serialNumber"] != bill_of_materials(part, "b" * 40, MOMENT)["serialNumber"]
    names = [component["purl"] for component in bill["components"]]
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / LOCKS[part]).read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(names) == len(set(names)) == len(pinned) + 1, "the packages of the lock file, and htmx"
    references = {names_of for entry in bill["dependencies"] for names_of in (entry["ref"], *entry["dependsOn"])}
    assert references == {*names, bill["metadata"]["component"]["purl"]}
    asks = {re.split("[/@]", entry["ref"])[1]: str(entry["dependsOn"]) for entry in bill["dependencies"]}
    assert "/litellm@" in asks["maestro-agents"]
    assert "/openai@" in asks["litellm"]
    assert ("/obstore@" in asks["maestro-agents"]) is (part == "image")
