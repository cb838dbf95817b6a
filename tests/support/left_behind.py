"""Who a program left behind: its processes write down who they are, in files whose names end in ``pid``."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

PATIENCE = 30.0
"""Seconds for what must happen; only a failure takes them."""


def pids(folder: Path) -> Sequence[int]:
    """Return every process that wrote down who it is."""
    return [int(file.read_text()) for file in folder.glob("*pid")]


def alive(pid: int) -> bool:
    """Tell whether a process is there and not only waiting to be buried."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def nobody_left(folder: Path) -> bool:
    """Tell that something ran and nothing does any more."""
    return bool(pids(folder)) and not any(map(alive, pids(folder)))


async def noted(file: Path) -> None:
    """Return when a process has written who it is into this file."""
    await _until(lambda: file.exists() and bool(file.read_text().strip()))


async def nobody_stays(folder: Path) -> None:
    """Return when nothing of what ran there does any more."""
    await _until(lambda: nobody_left(folder))


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
