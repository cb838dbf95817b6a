"""What is installed: every file that Maestro reads at run time, not only its code."""

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.unit.architecture.source import PACKAGES, ROOT


def test_the_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    wanted = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
    assert "maestro/skills/code-review.md" in wanted
    assert wanted - held == set()
