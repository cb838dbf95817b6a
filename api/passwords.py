"""The passwords of the dashboard, and what each of them lets a person do."""

import hashlib
import hmac
from collections.abc import Mapping
from enum import StrEnum

from api.parts import GuardSettings


class Role(StrEnum):
    """What somebody with a password may do; the audit log calls them so too."""

    OPERATOR = "operator"
    VIEWER = "viewer"


USER = "maestro"
USERS: Mapping[str, Role] = {USER: Role.OPERATOR, "viewer": Role.VIEWER}
"""The names of HTTP Basic."""


class Passwords:
    """Knows which password is whose; every comparison takes the same time, right or wrong."""

    def __init__(self, settings: GuardSettings) -> None:
        self._known = {Role.OPERATOR: settings.password, Role.VIEWER: settings.viewer_password}

    def role_of(self, user: str, password: str) -> Role | None:
        """Return what name and password allow, None when they do not belong together."""
        fits = [role for name, role in USERS.items() if same(user, name) & self._fits(role, password)]
        return fits[0] if fits else None

    def role_by(self, password: str) -> Role | None:
        """Return what a password allows, whoever types it."""
        fits = [role for role in self._known if self._fits(role, password)]
        return fits[0] if fits else None

    def _fits(self, role: Role, password: str) -> bool:
        known = self._known[role]
        return same(password, known) & bool(known)


def same(given: str, expected: str) -> bool:
    """Compare in constant time, whatever the lengths."""
    digests = (hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (given, expected))
    return hmac.compare_digest(*digests)
