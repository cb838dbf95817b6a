"""Doors for tests: an intake without a Maestro around it, and who may come in."""

from maestro.domain.people.people import AccessRules, DmPolicy
from maestro.domain.settings.jobs import RoutingSettings
from maestro.intake.access import AccessControl

EVERYBODY = AccessRules(frozenset({"web:boss"}), {"web": DmPolicy.OPEN})
"""Everybody may come in by the web connector, where ``boss`` is an owner."""


def open_access() -> AccessControl:
    """Return what lets everybody in."""
    return AccessControl(EVERYBODY, RoutingSettings())
