"""Processes of our own that start in a moment: they are forked from one that has imported everything already."""

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.popen_forkserver import Popen
from pathlib import Path

from maestro.cli.main import main

FORKING = get_context("forkserver")
FORKING.set_forkserver_preload(["tests.support.preloaded"])

PATIENCE = 60.0
"""Seconds for what must happen; long, because only a failure ever takes them."""

STREAMS = (("input", os.O_RDONLY), ("output", os.O_WRONLY | os.O_CREAT), ("errors", os.O_WRONLY | os.O_CREAT))
"""Files that stand for the standard streams of a command, in the order of their descriptors."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    output: str
    errors: str


@dataclass(frozen=True)
class Given:
    """What a command is started with."""

    arguments: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]


def forked(
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None, piped: str | None = None
) -> Ended:
    """Run the command ``maestro`` to its end in a process and a folder of its own; ``piped`` is its standard input.

    Only the installed script and its imports, which take seconds, are left out; where these are what a test is about,
    it starts ``COMMAND`` of ``tests.support.command``.
    """
    given = Given(arguments, folder, {**os.environ, **(environment or {})})
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place, name) for name, _ in STREAMS]
        files[0].write_text(piped or "")
        # Not by its own start(), which looks after the ended processes of other threads, and takes their exit codes.
        process = Popen(FORKING.Process(target=be_the_command, args=(given, files), daemon=True))
        code = process.wait(PATIENCE)
        if code is None:
            process.kill()
            raise TimeoutError(f"it did not end: maestro {' '.join(arguments)}")
        return Ended(code, *(file.read_text() for file in files[1:]))


def be_the_command(given: Given, files: list[Path]) -> None:
    """Be the process of a command, to its end."""
    os.environ.clear()
    os.environ.update(given.environment)
    os.chdir(given.folder)
    for descriptor, (file, (_, flags)) in enumerate(zip(files, STREAMS, strict=True)):
        opened = os.open(file, flags)
        os.dup2(opened, descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it is that of the process
    sys.argv = ["maestro", *given.arguments]
    main()
