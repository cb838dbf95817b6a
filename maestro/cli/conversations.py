"""List, show, search, end and delete conversations.

Messages that a compaction replaced by a summary are still shown. The commands work beside a running Maestro.
"""

from datetime import UTC
from typing import Annotated

import typer

from maestro.cli.framework.commands import Limit, QueryOptions, RowCursor, Yes, build_input, row_number
from maestro.cli.framework.operations import ACTOR, OperationCommands
from maestro.cli.framework.output import (
    Columns,
    Portrait,
    Result,
    channel_text,
    join_parts,
    list_lines,
    local_time_text,
    page_hint,
    plain_line,
)
from maestro.domain.agent_chat import SessionView
from maestro.installation.storage import open_files
from maestro.operations.conversations import (
    LIMIT,
    ConversationOperations,
    ConversationQuery,
    SearchQuery,
    SessionOperations,
)

NOTHING = "No conversations match."
NO_HITS = "No message contains this text."
NO_RECENT_HITS = "No recent message contains this text. To search older messages, add --cursor {}."
COLUMNS = Columns(
    "id status agent channel with messages=message_count tokens=total_tokens_estimate last_said=last_message_at",
    {"channel": channel_text, "with": lambda conversation: conversation.user_name or conversation.user_id},
)
HIT_COLUMNS = Columns("conversation=conversation_id message=id when=created_at who=author what=content")
PORTRAIT = Portrait(
    lambda conversation: f"Conversation {conversation.id}  {conversation.status}",
    hide="id status",
    lines_of={
        "compactions": lambda conversation: [
            f"{local_time_text(one.created_at)}: {one.messages_before} to {one.messages_after} messages"
            for one in conversation.compactions
        ]
    },
)

Number = Annotated[
    int,
    "ID: The number of the conversation, as `maestro conversations list` shows it.",
    row_number("conversation", "ID"),
]

app = OperationCommands(
    __doc__, lambda at: ConversationOperations(at.store, at.loaded.settings.data_dir, open_files(at.loaded.settings))
)
app.list(
    "List conversations, the one with the newest message first.", COLUMNS, NOTHING, QueryOptions(ConversationQuery)
)


@app.operation()
def show(
    conversations: ConversationOperations,
    number: Number,
    limit: Limit = LIMIT,
    cursor: Annotated[int, typer.Option(min=0, help="Continue after the message with this number.")] = 0,
) -> Result:
    """Show a conversation and its messages, oldest first."""
    detail = conversations.show(number)
    page = conversations.messages(detail.id, limit, cursor)
    views = {"conversation": detail.model_dump(mode="json"), "messages": page.model_dump(mode="json")}
    lines = [*PORTRAIT.lines(detail), ""]
    for message in page.items:
        marks = join_parts(
            "archived" if message.archived else "", "superseded" if message.superseded else "", separator=", "
        )
        said_at = f"{message.created_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        lines.append(f"[{message.id}] {said_at}  {plain_line(message.author)}{f'  ({marks})' if marks else ''}")
        lines += [f"    {plain_line(line)}" for line in message.content.splitlines()]
    return views, [*lines, *page_hint(page.next)]


@app.operation()
def search(
    conversations: ConversationOperations,
    text: Annotated[str, "TEXT: A part of a message."],
    limit: Limit = LIMIT,
    cursor: RowCursor = None,
) -> Result:
    """Find messages in all conversations, newest first."""
    query = build_input(SearchQuery, q=text, cursor=cursor)
    page = conversations.search(query.model_copy(update={"limit": limit}))
    return page, list_lines(page, HIT_COLUMNS, NO_HITS if page.next is None else NO_RECENT_HITS.format(page.next))


@app.operation()
def close(conversations: ConversationOperations, number: Number) -> Result:
    """End a conversation, as /new does: the next message begins a new one, and the ended one stays stored."""
    closed = conversations.close(number, ACTOR)
    return {"id": closed.id}, f"Conversation {closed.id} has ended."


@app.operation()
def delete(
    conversations: ConversationOperations,
    number: Number,
    facts: Annotated[bool, "--facts: Delete the facts learned in it as well."] = False,
    yes: Yes = False,
) -> Result:
    """Delete a conversation with all its messages; its cost stays in `maestro usage`."""
    conversation = conversations.show(number)
    if not yes:
        count = conversation.message_count + conversation.archived_count
        question = f"Delete conversation {conversation.id} with its {count} messages for good?"
        typer.confirm(question, abort=True, err=True)
    conversations.delete(conversation.id, ACTOR, facts)
    return {"id": conversation.id, "facts": facts}, f"Conversation {conversation.id} is deleted."


NO_SESSION = "No session is open; the next post opens one."

SESSION_HELP = """Show, begin and end the session of #maestro, the chat of the agents.

Agents see only the posts of the open session. `maestro up` opens a session at its start, and ends the session when it
stops. With `session.id` in the configuration, one session stays open.
"""

session_app = OperationCommands(
    SESSION_HELP,
    lambda at: SessionOperations(
        at.store, enabled=at.loaded.settings.chat.enabled, pinned=at.loaded.settings.session.id
    ),
)


@session_app.operation("show")
def show_session(sessions: SessionOperations) -> Result:
    """Show the open session."""
    session = sessions.show()
    return session, _session_text(session)


@session_app.operation("new")
def new_session(sessions: SessionOperations) -> Result:
    """End the open session and begin a new one: agents see only posts from now on."""
    session = sessions.begin(ACTOR)
    return session, _session_text(session)


@session_app.operation("end")
def end_session(sessions: SessionOperations) -> Result:
    """End the open session; the next post opens a new one."""
    ended = sessions.end(ACTOR)
    return sessions.show(), f"the session {ended} is ended; the next post opens another" if ended else NO_SESSION


def _session_text(session: SessionView) -> str:
    if session.started_at is None:
        return NO_SESSION
    posts = "1 post" if session.posts == 1 else f"{session.posts} posts"
    return f"the session {session.id} is open since {local_time_text(session.started_at)}, with {posts}"
