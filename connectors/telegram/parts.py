"""What a message on Telegram consists of: its words, and its files as references."""

from collections.abc import Iterator, Sequence

from telegram import Audio, Document, Message, MessageEntity, PhotoSize, Sticker, Video, VideoNote, Voice

from maestro.domain.messages import Attachment

File = Audio | Document | PhotoSize | Sticker | Video | VideoNote | Voice

JPEG, WEBP, OGG, MP4, MP3 = "image/jpeg", "image/webp", "audio/ogg", "video/mp4", "audio/mpeg"


def words_of(message: Message) -> str:
    """Return what a message says: its text, what stands below its files, else in brackets what it shows."""
    if message.text:
        return _with_links(message.text, message.entities)
    return _with_links(message.caption, message.caption_entities) if message.caption else _shown(message)


def files_of(message: Message) -> tuple[Attachment, ...]:
    """Return the files by reference: a link to one would hold the bot's token, and expire."""
    return tuple(_files(message))


def _with_links(text: str, entities: Sequence[MessageEntity]) -> str:
    """Return a text with the addresses behind its links, as people would write them; places count UTF-16 units."""
    units = text.encode("utf-16-le")
    links = [one for one in entities if one.type == MessageEntity.TEXT_LINK and one.url]
    for link in sorted(links, key=lambda one: one.offset, reverse=True):
        end = 2 * (link.offset + link.length)
        units = units[:end] + f" ({link.url})".encode("utf-16-le") + units[end:]
    return units.decode("utf-16-le", "replace")


def _files(message: Message) -> Iterator[Attachment]:
    number = message.message_id
    if message.photo:
        yield _file(message.photo[-1], f"photo-{number}.jpg", JPEG)  # the largest
    if message.voice:
        yield _file(message.voice, f"voice-{number}.ogg", OGG)
    if message.audio:
        yield _file(message.audio, f"audio-{number}.mp3", MP3)
    if message.video:
        yield _file(message.video, f"video-{number}.mp4", MP4)
    if message.video_note:
        yield _file(message.video_note, f"video-note-{number}.mp4", MP4)
    if message.document:  # an animation is one as well
        yield _file(message.document, f"file-{number}", "")
    if message.sticker and _is_picture(message.sticker):
        yield _file(message.sticker, f"sticker-{number}.webp", WEBP)


def _file(file: File, name: str, kind: str) -> Attachment:
    return Attachment(
        id=file.file_id,
        filename=getattr(file, "file_name", None) or name,
        content_type=getattr(file, "mime_type", None) or kind,
        size=max(0, file.file_size or 0),
    )


def _is_picture(sticker: Sticker) -> bool:
    return not sticker.is_animated and not sticker.is_video


def _shown(message: Message) -> str:
    """Return in brackets what has no words of its own, nothing where there is nothing to tell."""
    if message.venue:
        at = message.venue.location
        return f"[place: {message.venue.title}, {message.venue.address} ({at.latitude:g}, {at.longitude:g})]"
    if message.location:
        return f"[location: {message.location.latitude:g}, {message.location.longitude:g}]"
    if message.contact:
        name = " ".join(one for one in (message.contact.first_name, message.contact.last_name) if one)
        return f"[contact: {name}, {message.contact.phone_number}]"
    if message.poll:
        return f"[poll: {message.poll.question} {' / '.join(option.text for option in message.poll.options)}]"
    if message.dice:
        return f"[{message.dice.emoji} {message.dice.value}]"
    if message.sticker:
        return f"[sticker {message.sticker.emoji or ''}".rstrip() + "]"
    return ""
