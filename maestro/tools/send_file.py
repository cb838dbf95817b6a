"""The tool ``send_file``: a file of the conversation's folder goes to the person, after the answer."""

import mimetypes
import os
import stat
from pathlib import Path, PurePosixPath

from maestro.domain.deliveries import JobFile
from maestro.domain.filetypes import HEAD_BYTES, TEXT, UNKNOWN, by_magic, is_text
from maestro.store.files import Files
from maestro.store.transaction import Transaction
from maestro.tools.base import Arguments, Caller, ToolFailure, tool_spec
from maestro.tools.files import PATH, explained, inside

MOST_FILES = 10
MOST_BYTES = 50 * 1000**2
"""Bytes of all files of one job."""
CAPTION_CHARS = 1_000
NAME_CHARS = 100
BLOCK = 1024 * 1024


class SendFile:
    """Keeps the bytes at once, as they are now; delivery sends them once the answer's text is out."""

    spec = tool_spec(
        "send_file",
        "Send the person a file from your folder, which belongs to this conversation, as it is now. It goes out after "
        f"your answer; at most {MOST_FILES} files and {MOST_BYTES // 1000**2} MB at once. Where the person is, larger "
        "files or any at all may not be possible: then your answer says so.",
        {
            "path": PATH,
            "caption": {
                "type": "string",
                "minLength": 1,
                "maxLength": CAPTION_CHARS,
                "description": "what is said below it, if anything",
            },
        },
        ["path"],
    )
    idempotent = True
    read_only = False

    def __init__(self, files: Files) -> None:
        self._files = files

    def prepared(self, arguments: Arguments, caller: Caller) -> Arguments:
        """Keep the bytes, which may take a while; the same bytes are kept once, however often this is done."""
        place = inside(caller.folder, arguments["path"])
        with self._files.arriving() as folder, explained("The file cannot be sent"):
            copy = folder / "file"
            size = _copied(place, copy)
            kind = _content_type(copy, place.name)
            digest = self._files.take(copy)
        return {
            "digest": digest,
            "filename": _shown(place.name),
            "content_type": kind,
            "size": size,
            "caption": arguments.get("caption", "").strip(),
        }

    def act(self, tx: Transaction, arguments: Arguments, caller: Caller) -> str:
        """Keep that the file is to be sent, once, within the limits of a job."""
        number, place = caller.turn
        file = JobFile(job_id=caller.job_id, number=number, place=place, created_at=tx.now, **arguments)
        others = [one for one in tx.job_files.of(caller.job_id) if (one.digest, one.filename) != _key(file)]
        if len(others) >= MOST_FILES:
            raise ToolFailure(f"{MOST_FILES} files are to be sent already, which is as many as go out at once.")
        left = MOST_BYTES - sum(one.size for one in others)
        if file.size > left:
            raise ToolFailure(f"The file has {file.size:,} bytes; {left:,} more can be sent with this answer.")
        tx.job_files.add(file)
        return f"{file.filename} ({file.size:,} bytes) goes out after your answer."


def _key(file: JobFile) -> tuple[str, str]:
    return file.digest, file.filename


def _copied(place: Path, copy: Path) -> int:
    """Copy a file and return its bytes; what it was opened as is what is copied, whatever its name means later."""
    # Opening a pipe would wait for ever for somebody to write into it.
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as source, copy.open("wb") as target:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ToolFailure("This is not a file. list_files shows what there is.")
        while block := source.read(BLOCK):
            # It may grow meanwhile.
            if target.tell() + len(block) > MOST_BYTES:
                raise ToolFailure(f"The file is larger than {MOST_BYTES:,} bytes, which is the most that can be sent.")
            target.write(block)
        size = target.tell()
    if size == 0:
        raise ToolFailure("The file is empty, so there is nothing to send.")
    return size


def _content_type(copy: Path, name: str) -> str:
    """Return what kind of file it is by its bytes, else by its name."""
    with copy.open("rb") as file:
        known = by_magic(file.read(HEAD_BYTES))
        file.seek(0)
        return (
            known
            or mimetypes.guess_type(name)[0]
            or (TEXT if is_text(iter(lambda: file.read(BLOCK), b"")) else UNKNOWN)
        )


def _shown(name: str) -> str:
    """Return a file's name as every platform takes it, with its ending."""
    plain = "".join(character for character in name if character.isprintable())
    path = PurePosixPath(plain if plain.strip(". ") else "file")
    return f"{path.stem[: NAME_CHARS - len(path.suffix[:20])]}{path.suffix[:20]}"
