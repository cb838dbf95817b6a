"""The #maestro chat of a process, and what holds for its posts now."""

from collections.abc import Callable

from maestro.bootstrap.live import LiveSettings
from maestro.chat import ChatRules, ChatService
from maestro.domain.scanning import AllowList, ScanRules, SecretScanner
from maestro.scanner.scanner import DetectSecretsScanner, GuardedScanner
from maestro.settings import Settings
from maestro.store.store import Store


def build_chat(live: LiveSettings, store: Store, scanner: SecretScanner) -> ChatService | None:
    """Return the chat; None where the configuration has none."""
    return ChatService(store, scanner, live.of(chat_rules)) if live.start.chat.enabled else None


def build_scanner(failed: Callable[[], None]) -> SecretScanner:
    """Return what finds secrets; ``failed`` is called for each text that could not be scanned whole."""
    return GuardedScanner(DetectSecretsScanner(), failed)


def chat_rules(settings: Settings) -> ChatRules:
    """Return what holds for a post."""
    return ChatRules(settings.chat.limits.max_message_chars, scan_rules(settings))


def scan_rules(settings: Settings) -> ScanRules:
    """Return how secrets are looked for."""
    scanner = settings.chat.scanner
    allow = AllowList(scanner.allow)
    return ScanRules(scanner.enabled, scanner.timeout_ms, scanner.fail_mode, scanner.patterns, allow)
