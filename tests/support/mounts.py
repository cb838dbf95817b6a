"""A command in a view of the file system of its own, where a folder is full or cannot be written, even for root."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import cache
from pathlib import Path

import pytest


class Mount(StrEnum):
    """What becomes of a folder, given as the script's first argument, before the command runs; $2 is spare bytes."""

    READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"'
    FULL = (
        'mount -t tmpfs -o size=8m none "$1" && head -c "$2" /dev/zero > "$1/spare"; '
        'cat /dev/zero > "$1/fill" 2>/dev/null; rm "$1/spare"'
    )


def mounted(mount: Mount, folder: Path, spare: int = 0) -> tuple[str, ...]:
    """Return what stands before a command so that it finds the folder full, but for some bytes, or read-only.

    Permission bits would not stop root. Skips the test where the kernel lets nobody have such a view.
    """
    refused = _refused()
    if refused:
        pytest.skip(f"this system allows no mounts of one's own, which a full or read-only disk needs: {refused}")
    script = f'{mount} || exit 99; shift 2; exec "$@"'
    return ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(folder), str(spare))


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Let a folder be a file system of its own, of this size, for all processes; only root can mount it.

    Skips the test where that is not allowed.
    """
    refused = mount_disk(folder, megabytes)
    if refused:
        pytest.skip(f"no file system can be mounted here, which a disk that fills needs: {refused}")
    try:
        yield
    finally:
        unmount_disk(folder)


def mount_disk(folder: Path, megabytes: int) -> str:
    """Mount a file system of this size in a folder; return why that is refused, empty when it is not."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(folder)]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return tried.stderr.strip() or "no reason was given" if tried.returncode else ""


def unmount_disk(folder: Path) -> None:
    """Unmount it again."""
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Fill the file system of a folder to its last byte."""
    filling = folder / "filling"
    try:
        with suppress(OSError), filling.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(2**20))
        yield
    finally:
        filling.unlink()


@cache
def _refused() -> str:
    """Return why there can be no mounts, empty when there can."""
    tried = "mount -t tmpfs none /tmp && mount --bind /tmp /tmp && mount -o remount,ro,bind /tmp"
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", tried]
    try:
        ran = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no program unshare"
    return ran.stderr.strip() or ("" if ran.returncode == 0 else f"exit code {ran.returncode}")
