"""``maestro session``: the posts of #maestro that agents see (docs/decisions.md: chat sessions)."""

from maestro.cli.framework.operations import ACTOR, OperationCommands
from maestro.cli.framework.output import Result, moment
from maestro.domain.agent_chat import SessionView
from maestro.operations.sessions import SessionOperations

NONE = "No session is open; the next post opens one."

HELP = """Show, begin and end the session of #maestro.

Agents see what was posted in the open session and nothing older. `maestro up` opens one at its start and ends it when
it is stopped; with `session.id` in the configuration, one session stays open.
"""


app = OperationCommands(
    HELP,
    lambda at: SessionOperations(
        at.store, enabled=at.loaded.settings.chat.enabled, pinned=at.loaded.settings.session.id
    ),
)


@app.operation()
def show(sessions: SessionOperations) -> Result:
    """Show the session that is open."""
    session = sessions.show()
    return session, _session_text(session)


@app.operation()
def new(sessions: SessionOperations) -> Result:
    """End the session that is open and begin another: agents see only what is posted from now on."""
    session = sessions.begin(ACTOR)
    return session, _session_text(session)


@app.operation()
def end(sessions: SessionOperations) -> Result:
    """End the session that is open; the next post opens another."""
    ended = sessions.end(ACTOR)
    return sessions.show(), f"the session {ended} is ended; the next post opens another" if ended else NONE


def _session_text(session: SessionView) -> str:
    if session.started_at is None:
        return NONE
    posts = "1 post" if session.posts == 1 else f"{session.posts} posts"
    return f"the session {session.id} is open since {moment(session.started_at)}, with {posts}"
