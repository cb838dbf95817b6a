"""A stand-in for the command ``claude``: a script that notes how it was called and then does what a test wants."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

_NOTES = """#!/bin/sh
here=$(dirname "$0")
run=$(ls "$here" | grep -c words)
printf '%s\\n' "$@" > "$here/$run-words"
env > "$here/$run-environment"
pwd > "$here/$run-folder"
echo $$ > "$here/$run-pid"
cat > "$here/$run-said"
"""


class FakeClaude:
    """The script in a folder of its own, and what it noted of each run, counted from 0."""

    def __init__(self, folder: Path, script: str) -> None:
        """``script`` is for ``/bin/sh`` and runs when the prompt has been read; ``$run`` is the number of the run."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        command = folder / "claude"
        command.write_text(f"{_NOTES}{script}\n")
        command.chmod(0o755)

    @property
    def path(self) -> str:
        """The search path that finds it and what it needs."""
        return f"{self.folder}:/usr/bin:/bin"

    @property
    def runs(self) -> int:
        """How often it was started."""
        return len(list(self.folder.glob("*-words")))

    def words(self, run: int = 0) -> Sequence[str]:
        """Its arguments."""
        return self._note(run, "words").splitlines()

    def environment(self, run: int = 0) -> dict[str, str]:
        """Its environment."""
        return dict(line.split("=", 1) for line in self._note(run, "environment").splitlines() if "=" in line)

    def said(self, run: int = 0) -> str:
        """What it read."""
        return self._note(run, "said")

    def where(self, run: int = 0) -> Path:
        """The folder it was started in."""
        return Path(self._note(run, "folder").strip())

    def _note(self, run: int, name: str) -> str:
        return (self.folder / f"{run}-{name}").read_text()


def saying(text: str, *, failed: bool = False, usage: Mapping[str, int] | None = None) -> str:
    """Return the line of a script that writes a result as the real command does when it is asked for JSON."""
    result = {"type": "result", "subtype": "success", "is_error": failed, "result": text, "usage": dict(usage or {})}
    return f"cat <<'END'\n{json.dumps(result)}\nEND"
