"""Which texts are searched for secrets beside posts: the scanner, and what the settings have it look at."""

from collections.abc import Callable
from dataclasses import dataclass

from maestro.domain.redaction import Redact, SecretScanner, TextKind, as_it_is, redactor
from maestro.settings.live import LiveSettings
from maestro.settings.model import Settings


@dataclass(frozen=True)
class RedactionScope:
    """The scanner of a process and what it is to look at now (docs/decisions.md: redaction)."""

    scanner: SecretScanner
    live: LiveSettings

    def redact(self, kind: TextKind, settings: Settings) -> Redact:
        """Return what takes secrets out of texts of a kind; those that are not in scope stay as they are."""
        in_scope = kind in settings.chat.scanner.scope
        return redactor(self.scanner, settings.chat.scanner.rules) if in_scope else as_it_is

    def of(self, kind: TextKind) -> Callable[[], Redact]:
        """Return what a part asks at each use for what takes secrets out of texts of a kind."""
        return self.live.of(lambda settings: self.redact(kind, settings))
