"""The chat of a process, its scanner, and which texts are searched for secrets.

See docs/decisions.md: chat sessions.
"""

from collections.abc import Callable
from dataclasses import dataclass

from maestro.chat import ChatService
from maestro.domain.redaction import Redact, TextKind, as_it_is, redactor
from maestro.domain.scanning import SecretScanner
from maestro.scanner.scanner import DetectSecretsScanner, GuardedScanner
from maestro.settings import Settings
from maestro.settings.live import LiveSettings
from maestro.store.store import Store


def build_chat(live: LiveSettings, store: Store, scanner: SecretScanner) -> ChatService | None:
    """Return the chat; None where the configuration has none."""
    return ChatService(store, scanner, live.of(lambda settings: settings.chat)) if live.start.chat.enabled else None


def build_scanner(failed: Callable[[], None]) -> SecretScanner:
    """Return what finds secrets; ``failed`` is called for each text that could not be scanned whole."""
    return GuardedScanner(DetectSecretsScanner(), failed)


@dataclass(frozen=True)
class RedactionScope:
    """The scanner of a process and what it is to look at now (docs/decisions.md: redaction)."""

    scanner: SecretScanner
    live: LiveSettings

    @classmethod
    def built(cls, live: LiveSettings, failed: Callable[[], None] = lambda: None) -> "RedactionScope":
        """Return a scope with a scanner of its own; ``failed`` is told of each text it could not scan whole."""
        return cls(build_scanner(failed), live)

    def redact(self, kind: TextKind, settings: Settings) -> Redact:
        """Return what takes secrets out of texts of a kind; those that are not in scope stay as they are."""
        in_scope = kind in settings.chat.scanner.scope
        return redactor(self.scanner, settings.chat.scanner.rules) if in_scope else as_it_is

    def of(self, kind: TextKind) -> Callable[[], Redact]:
        """Return what a part asks at each use for what takes secrets out of texts of a kind."""
        return self.live.of(lambda settings: self.redact(kind, settings))


def join_session(store: Store, settings: Settings) -> None:
    """Open a session where none is open, and just the one of ``session.id`` where that is set.

    One that a crash has left open goes on, so that nothing in it stays unread.
    """
    if settings.chat.enabled:
        with store.begin() as tx:
            tx.chat.join(settings.session.id)


def end_session(store: Store, settings: Settings) -> None:
    """End the open session.

    Without a chat nobody was told anything, so nothing is ended. One of ``session.id`` stays open where other processes
    share the store: their next post would open another.
    """
    shared = not settings.temporal.embedded
    if settings.chat.enabled and not (settings.session.id and shared):
        with store.begin() as tx:
            tx.chat.end()
