"""``maestro session``: the posts of #maestro that agents see (docs/decisions.md: chat sessions)."""

from uuid import uuid4

from maestro.cli.framework.operations import ACTOR, Opened, OperationCommands
from maestro.cli.framework.output import Result, moment
from maestro.domain.chat.message import CHANNEL
from maestro.domain.chat.session import SessionView, session_view
from maestro.domain.errors import Conflict
from maestro.store.transaction import Transaction

NONE = "No session is open; the next post opens one."

HELP = """Show, begin and end the session of #maestro.

Agents see what was posted in the open session and nothing older. `maestro up` opens one at its start and ends it when
it is stopped; `session.id` in the configuration keeps one and the same.
"""

app = OperationCommands(HELP, lambda at: at)


@app.operation()
def show(at: Opened) -> Result:
    """Show the session that is open."""
    with at.store.view() as tx:
        session = _current(tx)
    return session, _sentence(session)


@app.operation()
def new(at: Opened) -> Result:
    """End the session that is open and begin another: agents see only what is posted from now on."""
    _check_changeable(at)
    with at.store.begin() as tx:
        tx.system.audit.add(ACTOR, "session.new", tx.chat.open(str(uuid4())))
        session = _current(tx)
    return session, _sentence(session)


@app.operation()
def end(at: Opened) -> Result:
    """End the session that is open; the next post opens another."""
    _check_changeable(at)
    with at.store.begin() as tx:
        ended = tx.chat.end()
        if ended:
            tx.system.audit.add(ACTOR, "session.end", ended)
        session = _current(tx)
    return session, f"the session {ended} is ended; the next post opens another" if ended else NONE


def _check_changeable(at: Opened) -> None:
    """Raise ``Conflict`` where there is no chat, or where the configuration says which session is open."""
    if not at.loaded.settings.chat.enabled:
        raise Conflict(f"{CHANNEL} is disabled by configuration: set chat.enabled to true first.")
    pinned = at.loaded.settings.session.id
    if pinned:
        raise Conflict(
            f"session.id keeps the session {pinned!r}. Take it out of the configuration, or write another id there, "
            "and restart Maestro."
        )


def _current(tx: Transaction) -> SessionView:
    current = tx.chat.current()
    return session_view(tx.chat.session(current) if current else None, tx.chat.count())


def _sentence(session: SessionView) -> str:
    if session.started_at is None:
        return NONE
    posts = "1 post" if session.posts == 1 else f"{session.posts} posts"
    return f"the session {session.id} is open since {moment(session.started_at)}, with {posts}"
