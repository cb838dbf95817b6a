"""What a file is by its own bytes, never by its name or by what somebody says of it."""

import codecs
import re
from collections.abc import Iterable

HEAD_BYTES = 512
"""How much of its beginning a file is recognised by."""

TEXT = "text/plain"
UNKNOWN = "application/octet-stream"

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"OggS", "audio/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"\xff\xf3", "audio/mpeg"),
    (0, b"\xff\xf2", "audio/mpeg"),
    (0, b"\xff\xfa", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (8, b"WAVE", "audio/wav"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftypM4B", "audio/mp4"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
)
_MARKUP = re.compile(rb"\s*<[a-z!?/]", re.IGNORECASE)
_NOT_IN_TEXT = re.compile("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


def by_magic(head: bytes) -> str:
    """Return the content type that a file's first bytes show, empty when they show none we know."""
    for offset, magic, content_type in _MAGIC:
        if head[offset:].startswith(magic) and (offset != 8 or head.startswith(b"RIFF")):
            return _with_codecs(content_type, head)
    return ""


def _with_codecs(content_type: str, head: bytes) -> str:
    """Tell sound from video where the format itself does not."""
    if content_type == "video/webm" and b"V_" not in head and (b"A_OPUS" in head or b"A_VORBIS" in head):
        return "audio/webm"
    return "video/ogg" if content_type == "audio/ogg" and b"\x80theora" in head else content_type


def is_markup(head: bytes) -> bool:
    """Tell whether a file begins like HTML, SVG or XML, which a browser would run."""
    return _MARKUP.match(head.removeprefix(codecs.BOM_UTF8)) is not None


def is_text(blocks: Iterable[bytes]) -> bool:
    """Tell whether the bytes are UTF-8 without the control characters that no text has; false for none at all."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    length = 0
    try:
        for block in blocks:
            length += len(block)
            if _NOT_IN_TEXT.search(decoder.decode(block)):
                return False
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return length > 0
