"""The files that came with a message, fetched and kept, and how a model hears of them."""

from collections.abc import Collection, Sequence

from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from maestro.domain.llm.prompts import ImageRef
from maestro.domain.texts import quoted

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
