"""An environment with what running needs, made without a package index from what is installed here."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.unit.architecture.source import ROOT


@dataclass(frozen=True)
class RunEnvironment:
    """A virtual environment with the packages of ``requirements-run.lock``, pip, and Maestro from its wheel."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def command(self) -> Path:
        """The command that `uvx maestro-agents` runs; `maestro` is the same."""
        return self.folder / "bin" / "maestro-agents"

    def run(self, *arguments: str | Path, folder: Path) -> str:
        """Run its Python in a folder and return what it prints."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [self.python, *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def mebibytes(self) -> int:
        """Return its size on disk."""
        done = subprocess.run(["du", "-sk", self.folder], capture_output=True, text=True, check=True)
        return int(done.stdout.split()[0]) // 1024


def make_run_environment(folder: Path) -> RunEnvironment:
    """Make one: pip would write the same files, those that each package's RECORD lists."""
    made = RunEnvironment(folder / "environment")
    venv.create(made.folder, with_pip=False)
    for name in (*_pinned(), "pip"):
        _copy(name, made.folder)
    _install_wheel(made, folder)
    made.run(ROOT / "scripts" / "compile_imported.py", folder=folder)
    runpy.run_path(str(ROOT / "scripts" / "set_up.py"))["remove_unused"](made.folder)
    return made


def _pinned() -> list[str]:
    """Return the packages of the lock that are for this platform and this Python."""
    lines = re.findall(r"^([\w.-]+)==([^\\]+)", (ROOT / "requirements-run.lock").read_text(), flags=re.MULTILINE)
    found = [Requirement(f"{name}=={rest}") for name, rest in lines]
    return [package.name for package in found if package.marker is None or package.marker.evaluate()]


def _copy(name: str, folder: Path) -> None:
    """Link a package's files into another environment; its bytecode is left behind."""
    here = Path(sys.prefix)
    for file in distribution(name).files or ():
        source = Path(os.path.abspath(file.locate()))
        if "__pycache__" in source.parts or not source.is_file():
            continue
        target = folder / source.relative_to(here)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another file system
            shutil.copy2(source, target)


def _install_wheel(made: RunEnvironment, folder: Path) -> None:
    """Build Maestro's wheel and install it as a newcomer's pip does."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    made.run("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", wheel, folder=folder)
