"""Files that come over HTTP: capped while they stream, and known by their first bytes, never by their name."""

import asyncio
import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.types import Message

from connectors.base import Upload
from connectors.web.errors import TooLarge, UnsupportedMedia
from maestro.domain.errors import InvalidMessage
from maestro.domain.filetypes import HEAD_BYTES, TEXT, by_magic, is_markup, is_text

ENVELOPE = 16 * 1024
"""Bytes a multipart body may need beside the file itself."""
MAX_FILENAME = 200
PREFIX = "maestro-upload-"
BLOCK = 64 * 1024


class _Body:
    """The request's bytes, counted; raises ``TooLarge`` as soon as they pass the cap."""

    def __init__(self, request: Request, cap: int) -> None:
        self._receive = request.receive
        self._left = cap + ENVELOPE
        self._cap = cap

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise too_large(self._cap)
        return message


def too_large(cap: int) -> TooLarge:
    """Return the error that names the cap, given in bytes."""
    return TooLarge(f"Too large; the limit is {cap} bytes.")


async def receive_file(request: Request, cap: int, folder: Path | None) -> Upload:
    """Stream the one file of a multipart body to disk.

    Raises ``TooLarge`` over ``cap`` bytes, ``UnsupportedMedia`` for a type we do not take, ``InvalidMessage`` for a
    body without a file. The file belongs to the caller, who moves or deletes it.
    """
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise UnsupportedMedia("Send the file as multipart/form-data.")
    part = await _file_part(request, cap)
    try:
        if (part.size or 0) > cap:
            raise too_large(cap)
        return await asyncio.to_thread(store, part.file, part.filename or "", folder)
    finally:
        await part.close()


async def _file_part(request: Request, cap: int) -> UploadFile:
    counted = Request(request.scope, _Body(request, cap))
    parser = MultiPartParser(counted.headers, counted.stream(), max_files=1, max_fields=8, max_part_size=ENVELOPE)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise InvalidMessage(f"The upload is malformed: {error.message}") from error
    for value in form.values():
        if isinstance(value, UploadFile):
            return value
    raise InvalidMessage("The upload carries no file.")


def store(source: BinaryIO, name: str, folder: Path | None) -> Upload:
    """Copy a file to a folder of ours after a look at its bytes; raises ``UnsupportedMedia``."""
    content_type = sniff(source)
    source.seek(0)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    handle, path = tempfile.mkstemp(prefix=PREFIX, dir=folder)
    with os.fdopen(handle, "wb") as target:
        shutil.copyfileobj(source, target)
        size = target.tell()
    return Upload(path=Path(path), filename=safe_name(name), content_type=content_type, size=size)


def sweep(folder: Path, until: float) -> None:
    """Remove the uploads that a killed process left under way; ``until`` is when the youngest of them changed last."""
    for path in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # what cannot be deleted does no harm
            if path.stat().st_mtime <= until:
                path.unlink()


def sniff(source: BinaryIO) -> str:
    """Return the content type the bytes themselves show; raises ``UnsupportedMedia`` for markup and the unknown."""
    head = source.read(HEAD_BYTES)
    known = by_magic(head)
    if known:
        return known
    if is_markup(head):
        raise UnsupportedMedia("HTML, SVG and XML files are not accepted.")
    source.seek(0)
    if is_text(iter(lambda: source.read(BLOCK), b"")):
        return TEXT
    raise UnsupportedMedia("This kind of file is not accepted; send an image, audio, video, PDF or plain text.")


def safe_name(name: str) -> str:
    """Return the last part of a file name without control characters, at most 200 characters."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(character for character in last if character.isprintable()).strip()[:MAX_FILENAME] or "file"
