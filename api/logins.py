"""Checks the passwords of the dashboard, and signs the cookies of its login sessions."""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from api.parts import GuardSettings
from maestro.store.store import Store


class DashboardRole(StrEnum):
    """The role that a password gives; the audit log names the role as the actor."""

    OPERATOR = "operator"
    VIEWER = "viewer"


USER = "maestro"
USERS: Mapping[str, DashboardRole] = {USER: DashboardRole.OPERATOR, "viewer": DashboardRole.VIEWER}
"""The user names of the roles in HTTP Basic."""


class Passwords:
    """The passwords of the roles; a comparison takes the same time for right and wrong passwords."""

    def __init__(self, settings: GuardSettings) -> None:
        self._known = {DashboardRole.OPERATOR: settings.password, DashboardRole.VIEWER: settings.viewer_password}

    def role_of(self, user: str, password: str) -> DashboardRole | None:
        """Return the role of a user name and a password, None if the pair is wrong."""
        fits = [role for name, role in USERS.items() if same_secret(user, name) & self._is_password_of(role, password)]
        return fits[0] if fits else None

    def role_by(self, password: str) -> DashboardRole | None:
        """Return the role of a password, None if the password is wrong."""
        fits = [role for role in self._known if self._is_password_of(role, password)]
        return fits[0] if fits else None

    def _is_password_of(self, role: DashboardRole, password: str) -> bool:
        known = self._known[role]
        return same_secret(password, known) & bool(known)


def same_secret(given: str, expected: str) -> bool:
    """Compare two texts of any length in constant time."""
    digests = (hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (given, expected))
    return hmac.compare_digest(*digests)


PURPOSES: Mapping[DashboardRole, bytes] = {
    DashboardRole.OPERATOR: b"maestro dashboard session 1\n",
    DashboardRole.VIEWER: b"maestro dashboard session of a viewer 1\n",
}
ID_BYTES = 18
CACHED_SESSIONS = 256
"""The most sessions in the cache that holds, until the next commit, whether a session was ended."""


@dataclass(frozen=True)
class LoginSession:
    """A login session; its forms and scripts must send ``csrf_token`` to change something."""

    id: str
    role: DashboardRole
    expires_at: datetime
    csrf_token: str


class LoginSessions:
    """The login sessions; a changed password ends all sessions of its role, a new signing key all sessions.

    Cookies are signed, so that logins outlast a restart. Each role signs with its own key: the signature alone decides
    the role, not the content of the cookie. Ended sessions are stored, so that a copied cookie stays invalid after a
    restart and in other processes.
    """

    def __init__(self, settings: GuardSettings, store: Store, clock: Callable[[], datetime]) -> None:
        passwords = {DashboardRole.OPERATOR: settings.password, DashboardRole.VIEWER: settings.viewer_password}
        self._keys = {
            role: hmac.digest(
                settings.signing_key, PURPOSES[role] + hashlib.sha256(password.encode()).digest(), "sha256"
            )
            for role, password in passwords.items()
            if password
        }
        self._store = store
        self._clock = clock
        self._ended = lru_cache(CACHED_SESSIONS)(self._is_ended)
        self.lifetime = timedelta(hours=settings.session_hours)

    def issue(self, role: DashboardRole) -> tuple[str, LoginSession]:
        """Return a new session with its cookie."""
        expires = int((self._clock() + self.lifetime).timestamp())
        session_id = secrets.token_urlsafe(ID_BYTES)
        body = f"{session_id}.{expires}"
        return f"{body}.{self._sign(role, 'cookie', body)}", self._build_session(role, session_id, expires)

    def read(self, cookie: str) -> LoginSession | None:
        """Return the session of a cookie; None if the cookie is forged or expired, or its session was ended."""
        body, _, signature = cookie.rpartition(".")
        given = signature.encode("utf-8", "replace")
        fits = [role for role in self._keys if hmac.compare_digest(self._sign(role, "cookie", body).encode(), given)]
        if not fits:
            return None
        session_id, _, expires = body.partition(".")
        session = self._build_session(fits[0], session_id, int(expires))
        over = session.expires_at <= self._clock() or self._ended(session_id, self._store.mark())
        return None if over else session

    def end(self, session: LoginSession) -> None:
        """End a session in every process, and add it to the audit log."""
        with self._store.begin() as tx:
            tx.users.logins.end(session.id, session.expires_at)
            tx.system.audit.add(session.role, "logout")

    def _is_ended(self, session_id: str, mark: str) -> bool:
        """Tell whether a session was ended; cached by the store's ``mark``, which changes with each commit."""
        del mark
        with self._store.view() as tx:
            return tx.users.logins.ended(session_id)

    def _build_session(self, role: DashboardRole, session_id: str, expires: int) -> LoginSession:
        return LoginSession(
            session_id, role, datetime.fromtimestamp(expires, UTC), self._sign(role, "csrf", session_id)
        )

    def _sign(self, role: DashboardRole, purpose: str, text: str) -> str:
        signed = f"{purpose}\n{text}".encode("utf-8", "replace")
        return hmac.new(self._keys[role], signed, hashlib.sha256).hexdigest()
