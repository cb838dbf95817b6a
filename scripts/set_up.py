"""Make ``.venv`` match the lock files and ``pyproject.toml``; do nothing when it already does.

``set_up.py run`` installs what running needs; ``set_up.py dev`` adds what the checks and tests need. Runs on a bare
Python, before anything is installed, so it uses the standard library only.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
LOCKS = {"run": "requirements-run.lock", "dev": "requirements.lock"}
"""What each part installs, in the order of installation: the tests need all that running needs."""
INPUTS = ("pyproject.toml", "requirements-build.lock", "scripts/set_up.py", "scripts/compile_imported.py")

UNUSED = ("litellm/proxy/_experimental/out",)
"""What wheels bring and Maestro never reads: the web pages of litellm's own server, 17 MB."""


def fingerprint(part: str) -> str:
    """Name the state the environment should have: its inputs, its Python and its place."""
    digest = hashlib.sha256(f"{sys.version_info[:3]} {ROOT}".encode())
    for name in (LOCKS[part], *INPUTS):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def stamp(part: str) -> Path:
    """Return the file that names the state for which this part was last installed completely."""
    return ENVIRONMENT / f"set-up-{part}.sha256"


def is_current(part: str) -> bool:
    """Say whether the last complete set-up of this part was for exactly this state."""
    return PYTHON.exists() and stamp(part).exists() and stamp(part).read_text() == fingerprint(part)


def is_usable() -> bool:
    """Say whether the environment is whole, made by the Python that runs this script, and still where it was made."""
    question = "import pip, sys; print(sys.version_info[:3])"
    try:
        answer = subprocess.run([PYTHON, "-c", question], capture_output=True, text=True, check=True)  # noqa: S603 - ours
        script = (ENVIRONMENT / "bin" / "pip").read_text()
    except (OSError, subprocess.CalledProcessError):
        return False
    # Scripts name their interpreter by its full path, so an environment does not survive being moved.
    return answer.stdout.strip() == str(sys.version_info[:3]) and str(PYTHON) in script


def pip_install(*arguments: str, environment: Mapping[str, str] | None = None) -> None:
    """Install into the environment, without the bytecode of modules that nothing may ever import."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-compile", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, **(environment or {})})  # noqa: S603 - a fixed command


def install_lock(lock: str, *arguments: str) -> None:
    """Install hashes and wheels only: nothing that was not reviewed with the lock file runs on this machine."""
    pip_install("--require-hashes", "--only-binary", ":all:", *arguments, "--requirement", lock)


def install_ourselves() -> None:
    """Install Maestro as the code in this folder; what builds it is needed once and stays nowhere."""
    with tempfile.TemporaryDirectory() as tools:
        install_lock("requirements-build.lock", "--target", tools)
        pip_install("--no-build-isolation", "--editable", ".", environment={"PYTHONPATH": tools})


def remove_unused(environment: Path) -> None:
    """Remove what takes space and is not needed to run: unused parts of wheels, and the bytecode of pip."""
    [packages] = environment.glob("lib/python*/site-packages")
    for folder in [*(packages / name for name in UNUSED), *(packages / "pip").rglob("__pycache__")]:
        shutil.rmtree(folder, ignore_errors=True)


def set_up(part: str) -> None:
    """Install this part; its stamp is removed first and written last, so a failure leaves none."""
    stamp(part).unlink(missing_ok=True)
    if not is_usable():
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        # Python 3.11 puts it into every environment; nothing here uses it, and it would never be updated. Twice quiet,
        # pip does not warn where there is none.
        subprocess.run([PYTHON, "-m", "pip", "uninstall", "-qq", "--yes", "setuptools"], check=True)  # noqa: S603
    install_lock(LOCKS[part])
    if part == "run":
        install_ourselves()
        subprocess.run([PYTHON, "scripts/compile_imported.py"], cwd=ROOT, check=True)  # noqa: S603 - ours
        remove_unused(ENVIRONMENT)
    stamp(part).write_text(fingerprint(part))


def main(wanted: str) -> int:
    parts = list(LOCKS)[: list(LOCKS).index(wanted) + 1]
    if all(map(is_current, parts)):
        return 0
    print(f"Setting up {ENVIRONMENT} with Python {sys.version.split()[0]} (about a minute, once).", flush=True)
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            for part in parts:
                if not is_current(part):  # else another make was faster
                    set_up(part)
        except subprocess.CalledProcessError as error:
            print(
                f"error: the set-up failed: {error.cmd[:3]} ended with {error.returncode}; see above.", file=sys.stderr
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
