"""``maestro conversations``: what people and agents said to each other, and its end."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from maestro.cli.checked import fits, made, row_number
from maestro.cli.commands import Commands
from maestro.cli.opened import ACTOR, Opened, opened
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.cli.pages import Limit, TextCursor, decoded, more
from maestro.cli.table import lines, plain
from maestro.domain.columns import LARGEST
from maestro.domain.conversations.conversation import ConversationStatus
from maestro.domain.conversations.views import (
    ConversationDetail,
    ConversationFilter,
    ConversationPage,
    Mark,
    SaidPage,
    SaidView,
)
from maestro.domain.values import Value
from maestro.domain.words import SearchText
from maestro.operations.conversations import LIMIT, ConversationOperations

COLUMNS = ("id", "status", "agent", "channel", "with", "messages", "tokens", "last said")
NOTHING = "There are no such conversations."
NOTHING_SAID = "Nothing was said that contains this."
NOTHING_LATELY = "Nothing was said lately that contains this. Look at what was said before: add --cursor {}."

HELP = """List, show, search, end and delete conversations.

What a compaction took away from the models is still shown here. All of this works beside a running Maestro.
"""

Number = Annotated[str, typer.Argument(metavar="ID", help="Its number, as `maestro conversations list` shows it.")]

app = Commands(HELP)


class Shown(Value):
    """A conversation and a page of what was said in it."""

    conversation: ConversationDetail
    messages: SaidPage


class Closed(Value):
    """The conversation that has ended."""

    id: int


class Deleted(Value):
    """The conversation that is gone, and whether what was learned in it is gone too."""

    id: int
    facts: bool


def _operations(at: Opened) -> ConversationOperations:
    return ConversationOperations(at.store, at.loaded.settings.data_dir)


@app.command("list")
def list_conversations(
    given: Given,
    agent: Annotated[str | None, typer.Option(metavar="SLUG", help="Only those of this agent.")] = None,
    platform: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this platform.")] = None,
    channel: Annotated[str | None, typer.Option(metavar="ID", help="Only those of this channel.")] = None,
    user: Annotated[str | None, typer.Option(metavar="ID", help="Only those that this person began.")] = None,
    status: Annotated[ConversationStatus | None, typer.Option(help="Only these.")] = None,
    text: Annotated[str | None, typer.Option("--q", metavar="TEXT", help="Only those that contain this.")] = None,
    limit: Limit = LIMIT,
    cursor: TextCursor = None,
) -> None:
    """List conversations, the one that was spoken in last first."""
    wanted = made(ConversationFilter, agent=agent, platform=platform, channel=channel, user=user, status=status, q=text)
    after = decoded(Mark.decode, cursor)
    with opened(given) as at:
        page = _operations(at).page(wanted, limit, after)
    write(page, _listing(page), given.as_json)


@app.command()
def show(
    given: Given,
    number: Number,
    limit: Limit = LIMIT,
    cursor: Annotated[int, typer.Option(min=0, help="Go on after the message with this number.")] = 0,
) -> None:
    """Show a conversation and what was said in it, oldest first."""
    with opened(given) as at:
        detail = _operations(at).show(row_number(number, "conversation", "ID"))
        page = _operations(at).messages(detail.id, limit, cursor)
    write(Shown(conversation=detail, messages=page), _portrait(detail, page), given.as_json)


@app.command()
def search(
    given: Given,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A part of what was said.")],
    limit: Limit = LIMIT,
    cursor: Annotated[
        int | None, typer.Option(min=1, max=LARGEST, help="Go on before the message with this number.")
    ] = None,
) -> None:
    """Find what was said in any conversation, newest first."""
    wanted = fits(SearchText, text)
    with opened(given) as at:
        page = _operations(at).containing(wanted, limit, cursor)
    write(page, _found(page), given.as_json)


@app.command()
def close(given: Given, number: Number) -> None:
    """End a conversation, as /new does: the next message begins another, and nothing of this one is lost."""
    with opened(given) as at:
        closed = row_number(number, "conversation", "ID")
        _operations(at).close(closed, ACTOR)
    write(Closed(id=closed), [f"Conversation {closed} has ended."], given.as_json)


@app.command()
def delete(
    given: Given,
    number: Number,
    facts: Annotated[bool, typer.Option("--facts", help="Forget what was learned in it, too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether it is meant.")] = False,
) -> None:
    """Delete a conversation with everything that was said in it; what it cost stays in the books."""
    with opened(given) as at:
        doomed = _operations(at).show(row_number(number, "conversation", "ID"))
        if not yes:
            count = doomed.message_count + doomed.archived_count
            typer.confirm(f"Delete conversation {doomed.id} with its {count} messages for good?", abort=True, err=True)
        _operations(at).delete(doomed.id, ACTOR, facts)
    write(Deleted(id=doomed.id, facts=facts), [f"Conversation {doomed.id} is deleted."], given.as_json)


def _listing(page: ConversationPage) -> Iterator[str]:
    if not page.items:
        yield NOTHING
        return
    yield from lines(
        COLUMNS,
        [
            (
                str(one.id),
                one.status,
                one.agent,
                "/".join(filter(None, (one.platform, one.channel, one.thread))),
                one.user_name or one.user_id,
                str(one.message_count),
                str(one.total_tokens_estimate),
                _moment(one.last_message_at),
            )
            for one in page.items
        ],
    )
    yield from more(page.next)


def _portrait(detail: ConversationDetail, page: SaidPage) -> Iterator[str]:
    yield f"Conversation {detail.id}  {detail.status}"
    for name, value in _facts(detail):
        if value:
            yield f"  {name:<10} {plain(value)}"
    yield ""
    for said in page.items:
        marks = [name for name, true in (("archived", said.archived), ("superseded", said.superseded)) if true]
        beside = f"  ({', '.join(marks)})" if marks else ""
        yield f"[{said.id}] {_moment(said.created_at)}  {plain(said.author)}{beside}"
        for line in said.content.splitlines():
            yield f"    {plain(line)}"
    yield from more(page.next)


def _facts(detail: ConversationDetail) -> Iterator[tuple[str, str]]:
    yield "agent", detail.agent
    yield "channel", "/".join(filter(None, (detail.platform, detail.account, detail.channel, detail.thread)))
    yield "with", detail.user_name or detail.user_id
    yield "messages", f"{detail.message_count}, and {detail.archived_count} archived"
    yield "tokens", str(detail.total_tokens_estimate)
    yield "learned", f"{detail.facts_learned} facts" if detail.facts_learned else ""
    yield "open jobs", ", ".join(detail.open_jobs)
    for one in detail.compactions:
        yield "compacted", f"{_moment(one.created_at)}: {one.messages_before} to {one.messages_after} messages"


def _found(page: SaidPage) -> Iterator[str]:
    if not page.items:
        yield NOTHING_SAID if page.next is None else NOTHING_LATELY.format(page.next)
        return
    yield from lines(("conversation", "message", "when", "who", "what"), [_hit(said) for said in page.items])
    yield from more(page.next)


def _hit(said: SaidView) -> tuple[str, ...]:
    return str(said.conversation_id), str(said.id), _moment(said.created_at), said.author, said.content


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
