"""The rules of intake and routing, the chat and the scanner (docs/decisions.md: routing, access, chat sessions)."""

from collections.abc import Callable

from maestro.chat import ChatService
from maestro.domain.people.people import AccessRules, DmPolicy
from maestro.domain.redaction import SecretScanner
from maestro.intake import IntakeRules
from maestro.intake.access import AccessControl
from maestro.scanner.scanner import DetectSecretsScanner, GuardedScanner
from maestro.settings import Settings
from maestro.settings.live import LiveSettings, RedactionScope
from maestro.store.store import Store


def access_control(settings: Settings) -> AccessControl:
    return AccessControl(_access_rules(settings), settings.routing)


def intake_rules(settings: Settings) -> IntakeRules:
    return IntakeRules(
        max_pending=settings.jobs.max_pending,
        access=_access_rules(settings),
        routing=settings.routing,
        pairing=settings.pairing,
    )


def _access_rules(settings: Settings) -> AccessRules:
    sections = settings.connectors.sections.items()
    policies = {"web": settings.web.dm_policy, **{name: section.dm_policy for name, section in sections}}
    return AccessRules(frozenset(settings.owner.ids), {name: DmPolicy(policy) for name, policy in policies.items()})


def build_chat(live: LiveSettings, store: Store, scanner: SecretScanner) -> ChatService | None:
    """Return the service of the agent chat, or None if the settings disable the chat."""
    return ChatService(store, scanner, live.of(lambda settings: settings.chat)) if live.start.chat.enabled else None


def build_scanner(failed: Callable[[], None]) -> SecretScanner:
    """Return the scanner for secrets, which calls ``failed`` for each text that it could not scan completely."""
    return GuardedScanner(DetectSecretsScanner(), failed)


def build_redaction(live: LiveSettings, failed: Callable[[], None] = lambda: None) -> RedactionScope:
    """Return the redaction for each kind of text, with a scanner of its own; see ``build_scanner`` for ``failed``."""
    return RedactionScope(build_scanner(failed), live)
