"""Files that came with a message: their type by their bytes, their rows, and the text that a model reads of them."""

import codecs
import re
from collections.abc import Collection, Iterable, Sequence

from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from maestro.domain.llm.prompts import ImageRef
from maestro.domain.texts import quoted

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

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What every provider we know can look at."""
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_IMAGES = 10
VOICE_TYPES = frozenset({"audio/ogg", "audio/mpeg", "audio/mp4", "audio/wav", "audio/webm", "audio/flac"})
"""What can be transcribed."""
MAX_VOICE_BYTES = 25 * 1024 * 1024
"""A larger recording is refused by the provider, and is no voice message but a file."""
MAX_TRANSCRIPT_CHARS = 20_000
MAX_NAME_CHARS = 120


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


class MediaFile(SQLModel, table=True):
    """One attachment; the bytes are in the media folder under ``digest``, empty when it could not be had.

    ``content_type`` is what the bytes themselves show, ``size`` is in bytes, ``error`` is for operators. ``transcript``
    is what was said in a voice message, empty when nobody could tell, None where nobody listened.
    """

    __tablename__ = "media"
    __table_args__ = (UniqueConstraint("inbox_id", "seq"), Index("ix_media_digest", "digest"))

    id: int | None = Field(default=None, primary_key=True)
    inbox_id: int = Field(foreign_key="inbox.id")
    seq: int
    digest: str = ""
    content_type: str = ""
    filename: str = ""
    size: int = 0
    error: str = ""
    transcript: str | None = None

    @property
    def is_picture(self) -> bool:
        """Whether a model can be shown this file."""
        return bool(self.digest) and self.content_type in IMAGE_TYPES and self.size <= MAX_IMAGE_BYTES

    @property
    def is_voice(self) -> bool:
        """Whether somebody speaks in this file."""
        return bool(self.digest) and self.content_type in VOICE_TYPES and self.size <= MAX_VOICE_BYTES

    @property
    def unheard(self) -> bool:
        """Whether somebody speaks in this file and nobody has listened yet."""
        return self.is_voice and self.transcript is None

    @property
    def image(self) -> ImageRef:
        """The file as an image of a prompt."""
        return ImageRef(digest=self.digest, content_type=self.content_type)


def prompt_text(said: str, files: Sequence[MediaFile], shown: Collection[int] = ()) -> str:
    """Return what the model reads of a message: what was said, and a line for every file that is not shown.

    ``shown`` are the places (``seq``) of the files that go along as images; they are named only where the message
    would be empty without. What was spoken stands in the text already.
    """
    others = [file for file in files if not file.is_voice or file.unheard]
    named = [file for file in others if file.seq not in shown or not said.strip()]
    return "\n".join([*([said] if said.strip() or not named else []), *map(_line, named)])


def spoken_text(said: str, files: Sequence[MediaFile]) -> str:
    """Return a message with what was spoken in its files before what was written.

    A transcript is one quoted line, so that nothing in it can pose as anything else; where there is none, the line
    says that there was a voice.
    """
    voices = [_spoken(file) for file in files if file.is_voice]
    return "\n".join([*voices, *([said] if said.strip() or not voices else [])])


def _spoken(file: MediaFile) -> str:
    return f"[Voice]: {quoted(file.transcript, MAX_TRANSCRIPT_CHARS)}" if file.transcript else "[Voice message]"


def _line(file: MediaFile) -> str:
    about = f"{file.content_type}, {_size(file.size)}" if file.digest else "not available"
    return f"[Attachment: {_name(file.filename)} ({about})]"


def _name(filename: str) -> str:
    """Return a file name that stays inside its line: people choose it, and it must not pose as anything else."""
    plain = "".join(character for character in filename if character.isprintable() and character not in "[]")
    return plain.strip()[:MAX_NAME_CHARS] or "file"


def _size(size: int) -> str:
    if size < 1_000:
        return f"{size} bytes"
    return f"{size / 1_000:.0f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"
