"""Builds a release of the last commit into ``dist``, and checks it; nothing is published. ``make release`` runs it."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from collections.abc import Mapping
from pathlib import Path

from scripts.inventory import LOCKS, PAGE, ROOT, bill_of_materials

DIST = ROOT / "dist"
CHECKERS = ("twine==7.0.0", "cyclonedx-python-lib[json-validation]==11.12.0")
"""They look at what is built and are no part of it, so they have an environment of their own, for this run only."""
VALIDATE = """
import sys
from pathlib import Path
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

errors = [JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(path).read_text()) for path in sys.argv[1:]]
sys.exit("\\n".join(str(error) for error in errors if error) or 0)
"""


def run(*command: str | Path, folder: Path = ROOT, moment: int = 0) -> str:
    """Run a program and return what it prints; its failure ends this one."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(moment)}
    done = subprocess.run(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, check=True)  # noqa: S603 - ours
    return done.stdout


def export_commit(commit: str, folder: Path) -> Path:
    """Write the files of a commit, and nothing that lies beside them in the working tree, into a new folder."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout  # noqa: S603, S607 - ours
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def build(source: Path, moment: int, *targets: str) -> Mapping[str, bytes]:
    """Return the distributions of a source tree by their file names; all times in them are this second since 1970."""
    options = [option for target in targets for option in ("--target", target)]
    run(sys.executable, "-m", "hatchling", "build", *options, folder=source, moment=moment)
    return {path.name: path.read_bytes() for path in (source / "dist").iterdir() if path.suffix in {".whl", ".gz"}}


def build_reproducibly(commit: str, moment: int, folder: Path) -> Mapping[str, bytes]:
    """Return wheel and source distribution, built twice in different folders, and the wheel also from the other one.

    Ends the program when two builds differ.
    """
    built = build(export_commit(commit, folder / "first"), moment, "sdist", "wheel")
    again = build(export_commit(commit, folder / "second"), moment, "sdist", "wheel")
    [(name, source)] = [(name, data) for name, data in built.items() if name.endswith(".tar.gz")]
    with tarfile.open(fileobj=io.BytesIO(source)) as files:
        files.extractall(folder / "third", filter="data")
    from_source = build(folder / "third" / name.removesuffix(".tar.gz"), moment, "wheel")
    if built != again or built != {**built, **from_source}:
        differing = [each for each in built if built[each] != again[each]] or list(from_source)
        sys.exit(f"error: two builds of one commit differ: {', '.join(differing)}")
    return built


def check(folder: Path, tools: Path) -> None:
    """Check the distributions as the package index does, and the bills of materials against the schema of CycloneDX."""
    venv.create(tools, with_pip=True)
    python = tools / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", *CHECKERS)
    files = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    subprocess.run([python, "-m", "twine", "check", "--strict", *files], check=True)  # noqa: S603 - ours
    subprocess.run([python, "-c", VALIDATE, *folder.glob("*.cdx.json")], check=True)  # noqa: S603 - ours


def main() -> int:
    if run("git", "status", "--porcelain"):
        print("error: commit your changes first; a release is made of a commit.", file=sys.stderr)
        return 1
    commit, moment = run("git", "log", "-1", "--format=%H %ct").split()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    with tempfile.TemporaryDirectory() as place:
        files = dict(build_reproducibly(commit, int(moment), Path(place)))
        for part in LOCKS:
            document = json.dumps(bill_of_materials(part, commit, int(moment)), indent=1)
            files[f"maestro-agents-{version}-{part}.cdx.json"] = document.encode()
        files[f"maestro-agents-{version}-licences.md"] = PAGE.read_bytes()
        sums = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items())]
        files["SHA256SUMS"] = "".join(sums).encode()
        made = Path(place, "dist")
        made.mkdir()
        for name, data in files.items():
            (made / name).write_bytes(data)
        check(made, Path(place, "tools"))
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(made, DIST)
    print(f"Maestro {version} of commit {commit[:8]} is in {DIST}:\n{''.join(sums)}", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
