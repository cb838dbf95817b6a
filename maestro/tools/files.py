"""The tools ``read_file``, ``write_file`` and ``list_files``, which never leave the conversation's folder."""

import asyncio
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ulid import ULID

from maestro.tools.base import Arguments, Caller, ToolFailure, shortened, tool_spec

READ_CHARS = 20_000
READ_BYTES = 4_000_000
WRITE_CHARS = 200_000
LISTED = 200

PATH = {"type": "string", "minLength": 1, "maxLength": 1000, "description": "its path inside your folder"}


class ReadFile:
    """Reads a text file."""

    spec = tool_spec(
        "read_file",
        "Read a text file in your folder, which belongs to this conversation. Long files come in pieces of "
        f"{READ_CHARS:,} characters: ask for the next one with offset.",
        {
            "path": PATH,
            "offset": {"type": "integer", "minimum": 0, "description": "the character to begin with, else 0"},
        },
        ["path"],
    )
    idempotent = True
    read_only = True

    async def run(self, arguments: Arguments, caller: Caller) -> str:
        """Return the text from the offset on."""
        text = await asyncio.to_thread(_read, inside(caller.folder, arguments["path"]))
        offset = arguments.get("offset", 0)
        if offset and offset >= len(text):
            raise ToolFailure(f"The file has only {len(text):,} characters.")
        return shortened(text[offset:], READ_CHARS)


class WriteFile:
    """Writes a text file."""

    spec = tool_spec(
        "write_file",
        "Write a text file in your folder, which belongs to this conversation. Folders on the way are created; a file "
        "that is there is replaced as a whole.",
        {"path": PATH, "content": {"type": "string", "maxLength": WRITE_CHARS, "description": "the whole text"}},
        ["path", "content"],
    )
    idempotent = True
    read_only = False

    async def run(self, arguments: Arguments, caller: Caller) -> str:
        """Return what was written."""
        content = arguments["content"]
        await asyncio.to_thread(_write, caller.folder, arguments["path"], content)
        return f"Wrote {len(content):,} characters to {arguments['path']}."


class ListFiles:
    """Lists what is in the folder."""

    spec = tool_spec(
        "list_files",
        "List the files in your folder, which belongs to this conversation, with their sizes in bytes, those in "
        f"folders inside it too; at most {LISTED}.",
        {"path": {"type": "string", "maxLength": 1000, "description": "a folder inside it; leave it out for all"}},
    )
    idempotent = True
    read_only = True

    async def run(self, arguments: Arguments, caller: Caller) -> str:
        """Return a line for each file."""
        return await asyncio.to_thread(_listed, caller.folder, inside(caller.folder, arguments.get("path") or "."))


def inside(folder: Path, path: str) -> Path:
    """Return a place in the folder, links followed; raises ``ToolFailure`` for one that is outside."""
    try:
        root = folder.resolve()
        place = (root / path).resolve()
    except (OSError, RuntimeError, ValueError):
        raise ToolFailure("This is not a path.") from None
    if not place.is_relative_to(root):
        raise ToolFailure("This path leads out of your folder. Use a path inside it, such as notes/today.txt.")
    return place


def _read(place: Path) -> str:
    with explained("The file cannot be read"):
        # Opening a pipe would wait for ever for somebody to write into it.
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ToolFailure("This is not a file. list_files shows what there is.")
            data = file.read(READ_BYTES + 1)
    if len(data) > READ_BYTES:
        raise ToolFailure(f"The file is larger than {READ_BYTES:,} bytes, which is more than can be read.")
    if b"\0" in data:
        raise ToolFailure("This is not a text file.")
    return data.decode(errors="replace")


def _write(folder: Path, path: str, content: str) -> None:
    """Replace the file at once: whoever reads it meanwhile, and a crash, finds the old text or the new one."""
    place = inside(folder, path)
    arriving = place.with_name(f".{ULID()}.arriving")
    with explained("The file cannot be written"):
        if place == folder.resolve() or place.is_dir():
            raise ToolFailure("This is a folder. Name a file in it.")
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            arriving.write_text(content, encoding="utf-8", errors="replace", newline="")
            arriving.replace(place)
        finally:
            arriving.unlink(missing_ok=True)


def _listed(folder: Path, place: Path) -> str:
    root = folder.resolve()
    lines: list[str] = []
    with explained("The files cannot be listed"):
        if not place.is_dir() and place != root:
            raise ToolFailure("There is no such folder. Leave the path out to see all files.")
        for file in _files(place):
            if len(lines) == LISTED:
                lines.append(f"[there are more; only {LISTED} are listed]")
                break
            lines.append(f"{file.relative_to(root)} ({file.lstat().st_size:,})")
    return "\n".join(lines) or "There are no files."


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn what the disk says into words for a model."""
    try:
        yield
    except OSError as error:
        raise ToolFailure(f"{what}: {error.strerror}. list_files shows what there is.") from None


def _files(place: Path) -> Iterator[Path]:
    """Yield the files below a folder in the order of their names; links are listed, not followed."""
    for folder, folders, names in os.walk(place):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names))
