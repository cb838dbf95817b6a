"""The #maestro chat: posts are scanned and truncated before they are stored."""

from collections.abc import Callable, Sequence

from maestro.domain.agent_chat import Post, UnreadPosts, scan_post
from maestro.domain.errors import InvalidEdit
from maestro.domain.redaction import SecretScanner
from maestro.domain.settings.jobs import ChatSettings, SessionSettings
from maestro.domain.texts import storable_text
from maestro.store.store import Store


class ChatService:
    """The operations on the channel for agents and users; its rules are read at each use, because they may change."""

    def __init__(self, store: Store, scanner: SecretScanner, rules: Callable[[], ChatSettings]) -> None:
        self._store = store
        self._scanner = scanner
        self._rules = rules

    def add_post(self, author: str, text: str) -> int:
        """Store a post and return its id; ``author`` is ``@human`` or ``@`` and the slug of an agent.

        Raises ``InvalidEdit`` for an empty text, ``Forbidden`` for an author that does not take part.
        """
        prepared = self.prepare_text(text)
        with self._store.begin() as tx:
            return tx.chat.add_post(author, prepared)

    def prepare_text(self, text: str) -> str:
        """Return a text redacted and truncated for storage; it takes up to the scanner's timeout.

        A caller with a transaction of its own calls this first. Raises ``InvalidEdit`` for an empty text.
        """
        text = storable_text(text)
        if not text.strip():
            raise InvalidEdit("a post must say something: give it a text that is not empty")
        rules = self._rules()
        return scan_post(text, rules.limits.max_message_chars, self._scanner, rules.scanner.rules).text

    def get_new_outside(self, slug: str) -> UnreadPosts:
        """Return the posts that an external agent has not read; each call marks the previous result as read.

        See docs/decisions.md: agent chat.
        """
        with self._store.begin() as tx:
            return tx.chat.mark_offered(slug)

    def list_posts(self, limit: int | None = None) -> Sequence[Post]:
        """Return the posts of the session, oldest first: all of them, or the newest ones up to a limit."""
        with self._store.view() as tx:
            return tx.chat.list_posts(limit)

    def read_version(self) -> str:
        """Return a version that changes with every post and with the session; cheap enough for one read a second."""
        with self._store.view() as tx:
            return f"{tx.chat.find_current_session() or ''}-{tx.chat.find_newest_id()}"


def join_session(store: Store, chat: ChatSettings, session: SessionSettings) -> None:
    """Open a session if none is open, or the session ``session.id`` if that is set.

    A session that a crash left open continues, so that all its posts can still be read.
    """
    if chat.enabled:
        with store.begin() as tx:
            tx.chat.join_current_session(session.id)


def end_session(store: Store, chat: ChatSettings, session: SessionSettings, *, shared: bool) -> None:
    """End the open session, if the chat is enabled.

    A session of ``session.id`` stays open if other processes share the store: their next post would open another
    session.
    """
    if chat.enabled and not (session.id and shared):
        with store.begin() as tx:
            tx.chat.end_current_session()
