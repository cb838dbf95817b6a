"""Make ``.venv`` match ``requirements.lock`` and ``pyproject.toml``; do nothing when it already does.

Runs on a bare Python, before anything is installed, so it uses the standard library only.
"""

import fcntl
import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "set-up.sha256"
INPUTS = ("requirements.lock", "pyproject.toml", "scripts/set_up.py")


def fingerprint() -> str:
    """Name the state the environment should have: its inputs, its Python and its place."""
    digest = hashlib.sha256(f"{sys.version_info[:3]} {ROOT}".encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def is_current() -> bool:
    """Say whether the last complete set-up was for exactly this state."""
    return PYTHON.exists() and STAMP.exists() and STAMP.read_text() == fingerprint()


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


def pip_install(*arguments: str) -> None:
    """Install into the environment, with the bytecode compiled now and not at the first start."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--compile"]
    subprocess.run([*command, *arguments], cwd=ROOT, check=True)  # noqa: S603 - a fixed command


def set_up() -> None:
    """Build the environment; the stamp is removed first and written last, so a failure leaves none."""
    STAMP.unlink(missing_ok=True)
    if not is_usable():
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
    # Hashes and wheels only: nothing that was not reviewed with the lock file runs on this machine.
    pip_install("--require-hashes", "--only-binary", ":all:", "--requirement", "requirements.lock")
    pip_install("--no-build-isolation", "--editable", ".")
    STAMP.write_text(fingerprint())


def main() -> int:
    if is_current():
        return 0
    print(f"Setting up {ENVIRONMENT} with Python {sys.version.split()[0]} (about a minute, once).", flush=True)
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_current():  # another make was faster
            return 0
        try:
            set_up()
        except subprocess.CalledProcessError as error:
            print(f"error: the set-up failed: pip ended with {error.returncode}; see above.", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
