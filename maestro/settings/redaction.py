"""Redaction of texts other than posts, for the kinds of texts that the settings name."""

from collections.abc import Callable
from dataclasses import dataclass

from maestro.domain.redaction import Redact, SecretScanner, TextKind, keep_text, redactor
from maestro.settings.live import LiveSettings
from maestro.settings.model import Settings


@dataclass(frozen=True)
class RedactionScope:
    """The scanner of a process, and the settings that choose the texts to scan (docs/decisions.md: redaction)."""

    scanner: SecretScanner
    live: LiveSettings

    def redact(self, kind: TextKind, settings: Settings) -> Redact:
        """Return the function that redacts texts of a kind; texts that are not in scope stay unchanged."""
        in_scope = kind in settings.chat.scanner.scope
        return redactor(self.scanner, settings.chat.scanner.rules) if in_scope else keep_text

    def of(self, kind: TextKind) -> Callable[[], Redact]:
        """Return a function that returns the present redaction function for texts of a kind."""
        return self.live.of(lambda settings: self.redact(kind, settings))
