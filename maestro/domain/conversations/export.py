"""A conversation as a file for people to keep: Markdown to read, JSON for programs; written piece by piece."""

from collections.abc import Iterable, Iterator

from maestro.domain.conversations.views import CompactionView, ConversationDetail, SaidView, SentFile

_MOMENT = "%Y-%m-%d %H:%M:%S UTC"


def as_json(detail: ConversationDetail, said: Iterable[SaidView]) -> Iterator[str]:
    """Yield an object with the conversation and its messages, as the API shows both."""
    yield f'{{"conversation": {detail.model_dump_json()}, "messages": ['
    for number, one in enumerate(said):
        yield f"{',' if number else ''}\n{one.model_dump_json()}"
    yield "\n]}\n"


def as_markdown(detail: ConversationDetail, said: Iterable[SaidView]) -> Iterator[str]:
    """Yield a text to read: a heading for each message, and below it what was said.

    Each line that somebody said begins with ``>``, so that nobody's text can pose as another message.
    """
    place = "/".join(filter(None, (detail.platform, detail.account, detail.channel, detail.thread)))
    yield f"# Conversation {detail.id}\n\n"
    yield f"{_line(detail.agent)} and {_line(detail.user_name or detail.user_id)} in {_line(place)}, "
    yield f"{detail.started_at.strftime(_MOMENT)} to {detail.last_message_at.strftime(_MOMENT)}, {detail.status}.\n"
    left = list(detail.compactions)
    for one in said:
        while left and left[0].created_at < one.created_at:
            yield _compacted(left.pop(0))
        yield _said(one)
    yield from map(_compacted, left)


def _said(one: SaidView) -> str:
    marks = [name for name, true in (("archived", one.archived), ("superseded", one.superseded)) if true]
    beside = f" ({', '.join(marks)})" if marks else ""
    head = f"\n## {_line(one.author)}, {one.created_at.strftime(_MOMENT)}{beside}\n\n"
    return "".join([head, _quoted(one.content), *map(_file, one.files)])


def _file(file: SentFile) -> str:
    about = f"{file.content_type}, {file.size} bytes" if file.available else "not available"
    return f"\nFile: {_line(file.filename) or 'without a name'} ({_line(about)})\n"


def _compacted(one: CompactionView) -> str:
    head = f"\n## Compacted, {one.created_at.strftime(_MOMENT)}\n\n"
    return (
        f"{head}{one.messages_before} messages became {one.messages_after} and this summary:\n\n{_quoted(one.summary)}"
    )


def _quoted(text: str) -> str:
    return "".join(f"> {line}".rstrip() + "\n" for line in text.splitlines() or [""])


def _line(text: str) -> str:
    """Return a name on one line, in which nothing is Markdown."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|~" else letter for letter in " ".join(text.split()))
