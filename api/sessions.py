"""Sessions of the dashboard: signed cookies, the token against forged requests, and logging out."""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock

from api.parts import GuardSettings

PURPOSE = b"maestro dashboard session 1\n"
ID_BYTES = 18


@dataclass(frozen=True)
class Session:
    """A login; ``csrf_token`` is what its forms and scripts must send along to change something."""

    id: str
    expires_at: datetime
    csrf_token: str


class Sessions:
    """Issues and reads session cookies; a changed password ends them all, and so does a new signing key.

    A cookie carries its own proof, so that a restart logs nobody out. Logging out is remembered in memory until the
    cookie would have expired anyway: a restart forgets it, which only matters for a cookie that somebody copied.
    """

    def __init__(self, settings: GuardSettings, clock: Callable[[], datetime]) -> None:
        password = hashlib.sha256(settings.password.encode()).digest()
        self._key = hmac.digest(settings.signing_key, PURPOSE + password, "sha256")
        self._clock = clock
        self._lock = Lock()
        self._ended: dict[str, datetime] = {}
        self.lifetime = timedelta(hours=settings.session_hours)

    def issue(self) -> tuple[str, Session]:
        """Return a new cookie and its session."""
        expires = int((self._clock() + self.lifetime).timestamp())
        session_id = secrets.token_urlsafe(ID_BYTES)
        body = f"{session_id}.{expires}"
        return f"{body}.{self._sign('cookie', body)}", self._session(session_id, expires)

    def read(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None when it is forged, expired or logged out."""
        body, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._sign("cookie", body).encode(), signature.encode()):
            return None
        session_id, _, expires = body.partition(".")
        session = self._session(session_id, int(expires))
        if session.expires_at <= self._clock() or session_id in self._ended:
            return None
        return session

    def end(self, session: Session) -> None:
        """Let the cookie of this session count no more."""
        now = self._clock()
        with self._lock:
            self._ended = {known: until for known, until in self._ended.items() if until > now}
            self._ended[session.id] = session.expires_at

    def _session(self, session_id: str, expires: int) -> Session:
        return Session(session_id, datetime.fromtimestamp(expires, UTC), self._sign("csrf", session_id))

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}\n{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()
