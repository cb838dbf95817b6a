"""The environments of the peers, one for each, installed from the package index."""

import asyncio
import contextlib
import hashlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.peer import PeerFailure
from benchmarks.processes import ROOT

ENVIRONMENTS = ROOT / "build" / "peers"
"""The folder of the environments, which later runs use again; ``make clean`` removes it."""
COMPLETE = "complete"
INSTALL_TIMEOUT = 900.0
"""Seconds for an installation."""


async def environment_of(requirements: Sequence[str]) -> Path:
    """Return the programs' folder of an environment with these requirements; raises ``PeerFailure``."""
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
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(INSTALL_TIMEOUT):
            output, _ = await process.communicate()
    except TimeoutError as error:
        raise PeerFailure(f"pip did not end within {INSTALL_TIMEOUT:g} s") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the builds that pip has started
            await process.wait()
    if process.returncode != 0:
        lines = [line for line in output.decode(errors="replace").splitlines() if line.startswith("ERROR")]
        raise PeerFailure(lines[-1] if lines else f"{command[0]} ended with {process.returncode}")
