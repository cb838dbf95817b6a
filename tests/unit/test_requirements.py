"""The lock files: what the project asks for is pinned in them, with hashes, and nothing in them says where from."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.unit.architecture.source import ROOT

LOCK = ROOT / "requirements.lock"
RUN = ROOT / "requirements-run.lock"
IMAGE = ROOT / "requirements-image.lock"
BUILD = ROOT / "requirements-build.lock"


def pinned(text: str) -> dict[str, str]:
    """Return the version of each package that a lock file pins."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, flags=re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def entries(lock: Path) -> set[str]:
    """Return what a lock file says of each package: its version, where it applies, its hashes."""
    return set(re.split(r"\n(?=\S)", lock.read_text().strip()))


def asked_for() -> list[Requirement]:
    """Return what the project needs to run, to be checked and to be built."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    texts = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    texts += optional(project["project"])
    return [Requirement(text) for text in texts + project["build-system"]["requires"]]


def optional(project: dict[str, Any]) -> list[str]:
    """Return what only some installations need."""
    return [text for texts in project["optional-dependencies"].values() for text in texts]


def unmet(requirements: list[Requirement], pins: dict[str, str]) -> Iterator[str]:
    """Yield each requirement that the pins do not meet."""
    for requirement in requirements:
        version = pins.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            yield f"{requirement} (pinned: {version})"


def test_every_requirement_is_pinned() -> None:
    assert not list(unmet(asked_for(), pinned(LOCK.read_text()))), "run `make lock`"


def test_a_missing_or_outgrown_pin_is_found() -> None:
    requirements = [Requirement("a>=2"), Requirement("B.c"), Requirement("d==1")]
    assert list(unmet(requirements, {"a": "1.9", "d": "1"})) == ["a>=2 (pinned: 1.9)", "B.c (pinned: None)"]


@pytest.mark.parametrize("lock", [LOCK, RUN, IMAGE, BUILD], ids=lambda path: path.stem)
def test_every_pin_has_a_hash(lock: Path) -> None:
    without = [line for line in lock.read_text().splitlines() if "==" in line and not line.endswith("\\")]
    assert not without


@pytest.mark.parametrize("lock", [LOCK, RUN, IMAGE, BUILD], ids=lambda path: path.stem)
def test_the_lock_names_no_place(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    assert not re.search(r"^\s*--(?!hash)", text, flags=re.MULTILINE)


@pytest.mark.parametrize("part", [RUN, IMAGE, BUILD], ids=lambda path: path.stem)
def test_what_the_image_installs_is_part_of_the_lock(part: Path) -> None:
    assert entries(part) <= entries(LOCK), "run `make lock`"


def test_the_image_gets_all_that_maestro_needs_to_run_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = pinned(IMAGE.read_text())
    needed = project["dependencies"] + optional(project)
    assert not list(unmet([Requirement(text) for text in needed], pins)), "run `make lock`"
    assert not list(unmet([Requirement(text) for text in project["dependencies"]], pinned(RUN.read_text())))
    assert pins.keys().isdisjoint({"pytest", "mypy", "ruff", "hatchling", "playwright"})


def test_what_builds_the_wheel_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert not list(
        unmet([Requirement(text) for text in project["build-system"]["requires"]], pinned(BUILD.read_text()))
    )


def test_every_supported_python_is_named_and_gets_what_maestro_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = [text.rpartition(" ")[2] for text in project["classifiers"] if "Python :: 3." in text]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert all(SpecifierSet(project["requires-python"]).contains(f"{version}.1") for version in versions)
    assert f"python{versions[-1]}" in (ROOT / ".ci" / "run").read_text()
    texts = project["dependencies"] + optional(project)
    needed = {canonicalize_name(Requirement(text).name) for text in texts}
    for version in versions:
        environment = {"python_version": version, "python_full_version": f"{version}.1"}
        assert needed <= set(pinned_for(environment, IMAGE)), version


def pinned_for(environment: dict[str, str], lock: Path) -> Iterator[str]:
    """Yield the packages that the lock file pins for a Python."""
    for line in re.findall(r"^[A-Za-z0-9._-]+==[^\\\n]+", lock.read_text(), flags=re.MULTILINE):
        requirement = Requirement(line.strip())
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield canonicalize_name(requirement.name)
