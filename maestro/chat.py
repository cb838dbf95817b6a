"""The service for #maestro, the chat of agents and people: it redacts and truncates posts before it stores them."""

from collections.abc import Callable, Sequence

from maestro.domain.agent_chat import Post, UnreadPosts, scan_post
from maestro.domain.errors import InvalidEdit
from maestro.domain.redaction import SecretScanner
from maestro.domain.settings.jobs import ChatSettings, SessionSettings
from maestro.domain.texts import storable_text
from maestro.store.store import Store


class ChatService:
    """The operations on #maestro, for agents and users; ``rules`` returns the chat settings that apply now."""

    def __init__(self, store: Store, scanner: SecretScanner, rules: Callable[[], ChatSettings]) -> None:
        self._store = store
        self._scanner = scanner
        self._rules = rules

    def add_post(self, author: str, text: str) -> int:
        """Store a post and return its id; ``author`` is ``@human`` or ``@`` and the slug of an agent.

        Raises ``InvalidEdit`` for an empty text, ``Forbidden`` for an author that does not take part in the chat.
        """
        prepared = self.prepare_text(text)
        with self._store.begin() as tx:
            return tx.chat.add_post(author, prepared)

    def prepare_text(self, text: str) -> str:
        """Return a post's text, redacted and truncated for storage; this may take as long as the scanner's timeout.

        Call it before a transaction begins, never within one. Raises ``InvalidEdit`` for an empty text.
        """
        text = storable_text(text)
        if not text.strip():
            raise InvalidEdit("a post must say something: give it a text that is not empty")
        rules = self._rules()
        return scan_post(text, rules.limits.max_message_chars, self._scanner, rules.scanner.rules).text

    def get_new_outside(self, slug: str) -> UnreadPosts:
        """Return the posts that an external agent has not read; each call marks the posts of the previous call as read.

        See docs/decisions.md: agent chat.
        """
        with self._store.begin() as tx:
            return tx.chat.mark_offered(slug)

    def list_posts(self, limit: int | None = None) -> Sequence[Post]:
        """Return the posts of the current session, oldest first; with ``limit``, only that many of the newest posts."""
        with self._store.view() as tx:
            return tx.chat.list_posts(limit)

    def read_version(self) -> str:
        """Return a text that changes with each new post and each new session; cheap enough to read every second."""
        with self._store.view() as tx:
            return f"{tx.chat.find_current_session() or ''}-{tx.chat.find_newest_id()}"


def join_session(store: Store, chat: ChatSettings, session: SessionSettings) -> None:
    """Open a chat session if none is open; with ``session.id`` set, open the session with that id.

    A session that a crash left open continues, so that all its posts can still be read.
    """
    if chat.enabled:
        with store.begin() as tx:
            tx.chat.join_current_session(session.id)


def end_session(store: Store, chat: ChatSettings, session: SessionSettings, *, shared: bool) -> None:
    """End the open chat session, if the chat is enabled.

    With ``session.id`` set and a store that other processes share, the session stays open: a post of another process
    would otherwise open a new session.
    """
    if chat.enabled and not (session.id and shared):
        with store.begin() as tx:
            tx.chat.end_current_session()
