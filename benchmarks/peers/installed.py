"""Environments of the peers: each has one of its own, made from the package index."""

import asyncio
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import ROOT

ENVIRONMENTS = ROOT / "build" / "peers"
"""Where the environments stay, so that the next run finds them; ``make clean`` removes them."""
COMPLETE = "complete"
LONGEST = 900.0
"""Seconds for an installation."""


class NotInstalled(Exception):
    """Raised when pip cannot install a peer here; its text is the reason."""


async def environment_of(requirements: Sequence[str]) -> Path:
    """Return the folder of programs of an environment with these requirements; raises ``NotInstalled``."""
    digest = hashlib.sha256("\n".join((sys.version, *requirements)).encode()).hexdigest()[:12]
    folder = ENVIRONMENTS / digest
    programs = folder / "bin"
    if not (folder / COMPLETE).exists():
        await _run(sys.executable, "-m", "venv", "--clear", str(folder))
        await _run(str(programs / "python"), "-m", "pip", "install", "--quiet", "--prefer-binary", *requirements)
        (folder / COMPLETE).write_text("\n".join(requirements))
    return programs


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(LONGEST):
            output, _ = await process.communicate()
    except TimeoutError as error:
        raise NotInstalled(f"pip did not end within {LONGEST:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        lines = [line for line in output.decode(errors="replace").splitlines() if line.startswith("ERROR")]
        raise NotInstalled(lines[-1] if lines else f"{command[0]} ended with {process.returncode}")
