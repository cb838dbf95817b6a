"""Files attached to messages: detection of their type, their rows, and the text that describes them to a model."""

import codecs
import re
from collections.abc import Collection, Iterable, Sequence

from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from maestro.domain.texts import quote_text

HEAD_BYTES = 512
"""The number of bytes at the start of a file by which its type is detected."""

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

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The image types that every supported provider accepts."""
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_IMAGES = 10
VOICE_TYPES = frozenset({"audio/ogg", "audio/mpeg", "audio/mp4", "audio/wav", "audio/webm", "audio/flac"})
"""The audio types that can be transcribed."""
MAX_VOICE_BYTES = 25 * 1024 * 1024
"""The largest recording that the provider transcribes; a larger one is treated as an ordinary file."""
MAX_NAME_CHARS = 120


def detect_type(head: bytes) -> str:
    """Return the content type that the first bytes of a file indicate, empty if they indicate no known type."""
    content_type = next(
        (
            content_type
            for offset, magic, content_type in _MAGIC
            if head.startswith(magic, offset) and (offset != 8 or head.startswith(b"RIFF"))
        ),
        "",
    )
    # WebM and Ogg files contain audio or video; the names of the codecs tell which.
    if content_type == "video/webm" and b"V_" not in head and (b"A_OPUS" in head or b"A_VORBIS" in head):
        return "audio/webm"
    return "video/ogg" if content_type == "audio/ogg" and b"\x80theora" in head else content_type


def is_markup(head: bytes) -> bool:
    """Return whether a file begins like HTML, SVG or XML, which a browser would execute."""
    return re.match(rb"\s*<[a-z!?/]", head.removeprefix(codecs.BOM_UTF8), re.IGNORECASE) is not None


def is_text(blocks: Iterable[bytes]) -> bool:
    """Return whether the bytes are UTF-8 text without unusual control characters; false for an empty file."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    length = 0
    try:
        for block in blocks:
            length += len(block)
            if re.search("[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]", decoder.decode(block)):
                return False
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return length > 0


class MediaFile(SQLModel, table=True):
    """A file attached to a message; the media store has the bytes under ``digest``, empty if the download failed.

    ``content_type`` is detected from the bytes, ``size`` is in bytes, ``error`` is for operators. ``transcript`` is the
    text of a voice message: empty if the transcription gave no text, None if there was no transcription.
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
        """Whether the file is an image that a model can see."""
        return bool(self.digest) and self.content_type in IMAGE_TYPES and self.size <= MAX_IMAGE_BYTES

    @property
    def is_voice(self) -> bool:
        """Whether the file is a recording that can be transcribed."""
        return bool(self.digest) and self.content_type in VOICE_TYPES and self.size <= MAX_VOICE_BYTES

    @property
    def lacks_transcript(self) -> bool:
        """Whether the file is a recording that has not been transcribed."""
        return self.is_voice and self.transcript is None


def prompt_text(text: str, files: Sequence[MediaFile], attached: Collection[int] = ()) -> str:
    """Return the text of a message for a model, with a line for each file that is not attached as an image.

    ``attached`` has the positions (``seq``) of the attached images; they get a line only if the message has no text.
    Transcribed recordings get no line, because ``text`` contains the transcripts.
    """
    others = [file for file in files if not file.is_voice or file.lacks_transcript]
    named = [file for file in others if file.seq not in attached or not text.strip()]
    return "\n".join([*([text] if text.strip() or not named else []), *map(_file_line, named)])


def add_transcripts(text: str, files: Sequence[MediaFile]) -> str:
    """Return the text of a message, with the transcripts of its recordings before the text.

    A transcript is one quoted line, so that nothing in it can imitate other parts of the prompt. A recording without a
    transcript gets the line ``[Voice message]``.
    """
    voices = [
        f"[Voice]: {quote_text(file.transcript, 20_000)}" if file.transcript else "[Voice message]"
        for file in files
        if file.is_voice
    ]
    return "\n".join([*voices, *([text] if text.strip() or not voices else [])])


def _file_line(file: MediaFile) -> str:
    # Users choose file names, so a file name could imitate other text of the prompt.
    name = "".join(character for character in file.filename if character.isprintable() and character not in "[]")
    about = f"{file.content_type}, {_size_text(file.size)}" if file.digest else "not available"
    return f"[Attachment: {name.strip()[:MAX_NAME_CHARS] or 'file'} ({about})]"


def _size_text(size: int) -> str:
    if size < 1_000:
        return f"{size} bytes"
    return f"{size / 1_000:.0f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"
