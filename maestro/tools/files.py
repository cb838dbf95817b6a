"""The tools for a conversation's folder: read, write, list and send files, and run a command there."""

import asyncio
import mimetypes
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ulid import ULID

from maestro.child_process import ProgramCommand, ProgramEnd, ProgramLimits, plain_environment, run_program
from maestro.domain.deliveries import JobFile
from maestro.domain.media import HEAD_BYTES, TEXT, UNKNOWN, detect_type, is_text
from maestro.store.files import MediaFolder
from maestro.store.transaction import Transaction
from maestro.tools.base import Arguments, ToolCaller, ToolFailure, shorten_text, tool_spec

READ_CHARS = 20_000
READ_BYTES = 4_000_000
LISTED = 200

PATH = {"type": "string", "minLength": 1, "maxLength": 1000, "description": "the file's path inside your folder"}

MOST_FILES = 10
MOST_BYTES = 50 * 1000**2
"""The limit in bytes of all files that one job sends."""
NAME_CHARS = 100
BLOCK = 1024 * 1024

SHELL = "/bin/sh"
OUTPUT_BYTES = 1_000_000
"""The limit in bytes of a command's output; a command that writes more is ended."""
OUTPUT_CHARS = 10_000
"""The limit in characters of each output; the middle of a longer one is cut, because the end usually has the error."""


class ReadFile:
    """The tool that reads a text file."""

    spec = tool_spec(
        "read_file",
        "Read a text file in your folder, which belongs to this conversation. Long files come in pieces of "
        f"{READ_CHARS:,} characters: ask for the next one with offset.",
        {
            "path": PATH,
            "offset": {"type": "integer", "minimum": 0, "description": "the first character to read (default 0)"},
        },
        ["path"],
    )
    idempotent = True
    read_only = True

    async def run(self, arguments: Arguments, caller: ToolCaller) -> str:
        """Return the text of the file from the offset on."""
        text = await asyncio.to_thread(_read_text, safe_path(caller.folder, arguments["path"]))
        offset = arguments.get("offset", 0)
        if offset and offset >= len(text):
            raise ToolFailure(f"The file has only {len(text):,} characters.")
        return shorten_text(text[offset:], READ_CHARS)


class WriteFile:
    """The tool that writes a text file."""

    spec = tool_spec(
        "write_file",
        "Write a text file in your folder, which belongs to this conversation. Folders on the way are created; a file "
        "that is there is replaced as a whole.",
        {"path": PATH, "content": {"type": "string", "maxLength": 200_000, "description": "the whole text"}},
        ["path", "content"],
    )
    idempotent = True
    read_only = False

    async def run(self, arguments: Arguments, caller: ToolCaller) -> str:
        """Write the file, and return a sentence with the number of characters written."""
        content = arguments["content"]
        await asyncio.to_thread(_replace_file, caller.folder, arguments["path"], content)
        return f"Wrote {len(content):,} characters to {arguments['path']}."


class ListFiles:
    """The tool that lists the files in the conversation's folder."""

    spec = tool_spec(
        "list_files",
        f"List the files in your folder and its subfolders with their sizes in bytes, at most {LISTED} files. The "
        "folder belongs to this conversation.",
        {"path": {"type": "string", "maxLength": 1000, "description": "a subfolder; leave it out for all"}},
    )
    idempotent = True
    read_only = True

    async def run(self, arguments: Arguments, caller: ToolCaller) -> str:
        """Return one line for each file, with the path and size."""
        return await asyncio.to_thread(
            list_file_lines, caller.folder, safe_path(caller.folder, arguments.get("path") or ".")
        )


def safe_path(folder: Path, path: str) -> Path:
    """Return the path of a file in the folder, with links resolved; raises ``ToolFailure`` for a path outside of it."""
    try:
        root = folder.resolve()
        target = (root / path).resolve()
    except (OSError, RuntimeError, ValueError):
        raise ToolFailure("This is not a path.") from None
    if not target.is_relative_to(root):
        raise ToolFailure("This path leads out of your folder. Use a path inside it, such as notes/today.txt.")
    return target


@contextmanager
def _open_file(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading; raises ``ToolFailure`` for anything else."""
    # Without O_NONBLOCK, opening a named pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ToolFailure("This is not a file. list_files shows what there is.")
        yield file


def _read_text(path: Path) -> str:
    with explain_os_errors("The file cannot be read"), _open_file(path) as file:
        data = file.read(READ_BYTES + 1)
    if len(data) > READ_BYTES:
        raise ToolFailure(f"The file is larger than {READ_BYTES:,} bytes, which is more than can be read.")
    if b"\0" in data:
        raise ToolFailure("This is not a text file.")
    return data.decode(errors="replace")


def _replace_file(folder: Path, path: str, content: str) -> None:
    """Replace the file atomically: a reader, or a crash, finds the old text or the new one."""
    target = safe_path(folder, path)
    arriving = target.with_name(f".{ULID()}.arriving")
    with explain_os_errors("The file cannot be written"):
        if target == folder.resolve() or target.is_dir():
            raise ToolFailure("This is a folder. Name a file in it.")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            arriving.write_text(content, encoding="utf-8", errors="replace", newline="")
            arriving.replace(target)
        finally:
            arriving.unlink(missing_ok=True)


def list_file_lines(folder: Path, start: Path) -> str:
    root = folder.resolve()
    lines: list[str] = []
    with explain_os_errors("The files cannot be listed"):
        if not start.is_dir() and start != root:
            raise ToolFailure("This folder does not exist. Leave the path out to see all files.")
        for file in _walk_files(start):
            if len(lines) == LISTED:
                lines.append(f"[there are more; only {LISTED} are listed]")
                break
            lines.append(f"{file.relative_to(root)} ({file.lstat().st_size:,})")
    return "\n".join(lines) or "There are no files."


@contextmanager
def explain_os_errors(problem: str) -> Iterator[None]:
    """Turn an ``OSError`` in the block into a ``ToolFailure`` for the model."""
    try:
        yield
    except OSError as error:
        raise ToolFailure(f"{problem}: {error.strerror}. list_files shows what there is.") from None


def _walk_files(start: Path) -> Iterator[Path]:
    """Yield the files below a folder in the order of their names; links are listed but not followed."""
    for folder, folders, names in os.walk(start):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names))


class SendFile:
    """The tool that stores a file's present bytes at once; delivery sends them after the text of the answer."""

    spec = tool_spec(
        "send_file",
        "Send the person a file from your folder, which belongs to this conversation, as it is now. It goes out after "
        f"your answer; at most {MOST_FILES} files and {MOST_BYTES // 1000**2} MB at once. The person's platform may "
        "not accept larger files, or any files: then your answer says so.",
        {
            "path": PATH,
            "caption": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1_000,
                "description": "the text below the file, if any",
            },
        },
        ["path"],
    )
    idempotent = True
    read_only = False

    def __init__(self, files: MediaFolder) -> None:
        self._files = files

    def prepared(self, arguments: Arguments, caller: ToolCaller) -> Arguments:
        """Store the file's bytes, which may take a while, and return the file's data; equal bytes are stored once."""
        path = safe_path(caller.folder, arguments["path"])
        with self._files.create_temporary_folder() as folder, explain_os_errors("The file cannot be sent"):
            copy = folder / "file"
            size = _copy_file(path, copy)
            content_type = _sent_content_type(copy, path.name)
            digest = self._files.move_in(copy)
        # Every platform accepts the resulting name, which keeps the file's extension.
        printable = "".join(filter(str.isprintable, path.name))
        name = PurePosixPath(printable if printable.strip(". ") else "file")
        return {
            "digest": digest,
            "filename": f"{name.stem[: NAME_CHARS - len(name.suffix[:20])]}{name.suffix[:20]}",
            "content_type": content_type,
            "size": size,
            "caption": arguments.get("caption", "").strip(),
        }

    def act(self, tx: Transaction, arguments: Arguments, caller: ToolCaller) -> str:
        """Record that the file is to be sent; raises ``ToolFailure`` beyond the limits of one answer."""
        number, place = caller.turn
        file = JobFile(job_id=caller.job_id, number=number, place=place, created_at=tx.now, **arguments)
        sizes = [
            other.size
            for other in tx.deliveries.files.list_files_of_job(caller.job_id)
            if (other.digest, other.filename) != (file.digest, file.filename)
        ]
        if len(sizes) >= MOST_FILES:
            raise ToolFailure(f"{MOST_FILES} files are waiting already, which is the most for one answer.")
        remaining = MOST_BYTES - sum(sizes)
        if file.size > remaining:
            raise ToolFailure(f"The file has {file.size:,} bytes; {remaining:,} more can be sent with this answer.")
        tx.deliveries.files.add_file(file)
        return f"{file.filename} ({file.size:,} bytes) goes out after your answer."


def _copy_file(path: Path, copy: Path) -> int:
    """Copy a file and return its size in bytes; the opened file is copied, even if its name is replaced meanwhile."""
    with _open_file(path) as source, copy.open("wb") as target:
        while block := source.read(BLOCK):
            # The size is checked for each block, because the file may grow while it is copied.
            if target.tell() + len(block) > MOST_BYTES:
                raise ToolFailure(f"The file is larger than {MOST_BYTES:,} bytes, which is the most that can be sent.")
            target.write(block)
        size = target.tell()
    if size == 0:
        raise ToolFailure("The file is empty, so there is nothing to send.")
    return size


def _sent_content_type(copy: Path, name: str) -> str:
    with copy.open("rb") as file:
        known = detect_type(file.read(HEAD_BYTES))
        file.seek(0)
        return (
            known
            or mimetypes.guess_type(name)[0]
            or (TEXT if is_text(iter(lambda: file.read(BLOCK), b"")) else UNKNOWN)
        )


class RunShell:
    """The tool that runs a shell command; all processes of the command have ended when the call returns."""

    spec = tool_spec(
        "run_shell",
        "Run a command in a POSIX shell and return its exit code and output. It begins in your folder, which belongs "
        "to this conversation and keeps its files. Nothing can be typed in, and what still runs in the background at "
        "the end is ended.",
        {"command": {"type": "string", "minLength": 1, "maxLength": 10_000, "description": "the command"}},
        ["command"],
    )
    idempotent = False
    read_only = False

    def __init__(self, environment: Mapping[str, str], seconds: Callable[[], float]) -> None:
        """``seconds`` returns the timeout; commands get the harmless variables of ``environment``, and no keys."""
        self._environment = plain_environment(environment)
        self._seconds = seconds

    async def run(self, arguments: Arguments, caller: ToolCaller) -> str:
        """Return the exit code and the output; a code other than 0 is a result like any other."""
        limits, folder = ProgramLimits(self._seconds(), OUTPUT_BYTES), caller.folder
        try:
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
            # With this HOME, the command does not read the files of Maestro's own user.
            environment = {**self._environment, "HOME": str(await asyncio.to_thread(folder.resolve))}
            result = await run_program(ProgramCommand((SHELL, "-c", arguments["command"]), folder, environment), limits)
        except (OSError, ValueError) as error:
            raise ToolFailure(f"The command cannot be started: {error}.") from None
        outputs = (("output", result.output), ("errors", result.errors))
        parts = [f"--- {name}\n{_cut_middle(text.decode(errors='replace'))}" for name, text in outputs if text]
        output = "\n".join(parts) or "(no output)"
        if result.outcome is ProgramEnd.TOO_LONG:
            raise ToolFailure(f"The command was ended after {limits.seconds:g} seconds.\n{output}")
        if result.outcome is ProgramEnd.TOO_MUCH:
            raise ToolFailure(f"The command was ended: it wrote more than {OUTPUT_BYTES:,} bytes.\n{output}")
        return f"exit code {result.code}\n{output}"


def _cut_middle(text: str) -> str:
    if len(text) <= OUTPUT_CHARS:
        return text
    half = OUTPUT_CHARS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters were left out]\n{text[-half:]}"
