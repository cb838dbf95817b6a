"""Checks credentials: passwords and login sessions of people, tokens of agents, and signatures of webhook senders."""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from http import HTTPStatus

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.errors import BEARER
from api.parts import GuardSettings
from maestro.domain.agents.agent import USE_RECORDED_EVERY, Agent, AgentStatus, TokenHolder
from maestro.domain.errors import Forbidden, Unauthorized
from maestro.domain.network import Throttle
from maestro.domain.webhooks.webhook import BadSignature, SignedDelivery, Webhook
from maestro.intake.webhooks import WebhookIntake
from maestro.store.store import Clock, Store


class DashboardRole(StrEnum):
    """The role of a dashboard user, which the password decides; the audit log names the role as the actor."""

    OPERATOR = "operator"
    VIEWER = "viewer"


USER = "maestro"
USERS: Mapping[str, DashboardRole] = {USER: DashboardRole.OPERATOR, "viewer": DashboardRole.VIEWER}
"""The user names for HTTP Basic authentication, with their roles."""


class Passwords:
    """The passwords of operator and viewer; a check takes equally long for right and wrong passwords."""

    def __init__(self, settings: GuardSettings) -> None:
        self._known = {DashboardRole.OPERATOR: settings.password, DashboardRole.VIEWER: settings.viewer_password}

    def find_role(self, password: str, user: str = "") -> DashboardRole | None:
        """Return the role of a password; None for a wrong password, or for a password of another user name."""
        fits = [
            role
            for name, role in USERS.items()
            if same_secret(user or name, name) & same_secret(password, self._known[role]) & bool(self._known[role])
        ]
        return fits[0] if fits else None


def same_secret(given: str, expected: str) -> bool:
    """Tell whether two secrets are equal, in a time that does not depend on their content."""
    digests = (hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (given, expected))
    return hmac.compare_digest(*digests)


PURPOSES: Mapping[DashboardRole, bytes] = {
    DashboardRole.OPERATOR: b"maestro dashboard session 1\n",
    DashboardRole.VIEWER: b"maestro dashboard session of a viewer 1\n",
}


@dataclass(frozen=True)
class LoginSession:
    """A login session of the dashboard; requests of the session that change something must send ``csrf_token``."""

    id: str
    role: DashboardRole
    expires_at: datetime
    csrf_token: str


class LoginSessions:
    """The login sessions; a changed password ends the sessions of its role, a new signing key ends all sessions.

    Cookies are signed, so that sessions survive a restart. Each role has its own signing key, so the signature alone
    decides the role of a cookie. Ended sessions are stored, so that a copied cookie stays invalid after a restart and
    in other processes.
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
        self._ended = lru_cache(256)(self._is_ended)  # asks the store once per session and commit
        self.lifetime = timedelta(hours=settings.session_hours)

    def start_session(self, role: DashboardRole) -> tuple[str, LoginSession]:
        """Return the cookie of a new session, and the session."""
        expires = int((self._clock() + self.lifetime).timestamp())
        session_id = secrets.token_urlsafe(18)
        body = f"{session_id}.{expires}"
        return f"{body}.{self._sign(role, 'cookie', body)}", self._build_session(role, session_id, expires)

    def read_session(self, cookie: str) -> LoginSession | None:
        """Return the session of a cookie; None if the cookie is forged or expired, or if the session was ended."""
        body, _, signature = cookie.rpartition(".")
        given = signature.encode("utf-8", "replace")
        fits = [role for role in self._keys if hmac.compare_digest(self._sign(role, "cookie", body).encode(), given)]
        if not fits:
            return None
        session_id, _, expires = body.partition(".")
        session = self._build_session(fits[0], session_id, int(expires))
        over = session.expires_at <= self._clock() or self._ended(session_id, self._store.mark())
        return None if over else session

    def end_session(self, session: LoginSession) -> None:
        """End a session for every process, and add the logout to the audit log."""
        with self._store.begin() as tx:
            tx.users.logins.end_login(session.id, session.expires_at)
            tx.system.audit.add_entry(session.role, "logout")

    def _is_ended(self, session_id: str, mark: str) -> bool:
        """Tell whether a session was ended; ``mark``, which changes with each commit, is only a key of the cache."""
        del mark
        with self._store.view() as tx:
            return tx.users.logins.is_ended(session_id)

    def _build_session(self, role: DashboardRole, session_id: str, expires: int) -> LoginSession:
        return LoginSession(
            session_id, role, datetime.fromtimestamp(expires, UTC), self._sign(role, "csrf", session_id)
        )

    def _sign(self, role: DashboardRole, purpose: str, text: str) -> str:
        signed = f"{purpose}\n{text}".encode("utf-8", "replace")
        return hmac.new(self._keys[role], signed, hashlib.sha256).hexdigest()


class TokenAuthentication:
    """The authentication of external agents by their bearer tokens."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._throttle = Throttle(clock, "tokens")

    def authenticate_request(self, request: Request) -> None:
        """Check the token in a request, and store the token's agent in the state of the request.

        Raises ``Unauthorized``, ``TooManyAttempts``, or ``Forbidden`` for an agent that is paused.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized("Send the token of an agent: Authorization: Bearer mst_...", challenge=BEARER)
        holder = self._find_holder(token.strip())
        if holder is None:
            self._record_wrong_token(request.client.host if request.client else "")
            raise Unauthorized(
                "This token is unknown or revoked, or its agent is archived. `maestro agents token new` creates one.",
                challenge=BEARER,
            )
        if holder.agent.status is not AgentStatus.ACTIVE:
            raise Forbidden(
                f"Agent {holder.agent.slug} is {holder.agent.status}; its tokens are valid again once it is active."
            )
        request.state.caller = holder.agent

    def _find_holder(self, token: str) -> TokenHolder | None:
        with self._store.view() as tx:
            holder, now = tx.agents.tokens.find_agent(token), tx.now
        if holder is None or holder.agent.status is AgentStatus.ARCHIVED:
            return None
        last_use = holder.token.last_used_at
        if last_use is None or now - last_use >= USE_RECORDED_EVERY:
            with self._store.begin() as tx:
                tx.agents.tokens.record_use(holder.token)
        return holder

    def _record_wrong_token(self, address: str) -> None:
        """Count a wrong token and record it in the audit log; raises ``TooManyAttempts`` after too many wrong tokens.

        Wrong tokens never block a valid token from the same address: one machine may run many agents, and a token of
        256 random bits cannot be guessed.
        """
        self._throttle.record_failure(address)
        with self._store.begin() as tx:
            tx.system.audit.add_entry("unknown", "token.failed", address)


def calling_agent(request: Request) -> Agent:
    """Return the agent whose token authenticated the request."""
    agent: Agent = request.state.caller
    return agent


@dataclass(frozen=True)
class SignedRequest:
    """A webhook request with a valid signature: the webhook, the signed delivery and the body."""

    webhook: Webhook
    signed: SignedDelivery
    body: bytes


class SignatureAuthentication:
    """The authentication of webhook requests by their signatures."""

    def __init__(self, hooks: WebhookIntake, clock: Clock) -> None:
        self._hooks = hooks
        self._throttle = Throttle(clock, "signatures")

    async def admit(self, request: Request) -> None:
        """Check the signature of a webhook request, and store the signed delivery in the request.

        Raises ``Unauthorized``, ``NotFound``, ``BadSignature``, ``WebhookUnready``, ``TooManyAttempts``, and
        ``HTTPException`` for a body that is too large.
        """
        path = request.path_params.get("path")
        if path is None:
            raise Unauthorized("No webhook has this address.")
        webhook = await asyncio.to_thread(self._hooks.find_webhook, path)
        length, max_bytes = request.headers.get("content-length", ""), self._hooks.settings().max_body_bytes
        if length.isdecimal() and int(length) > max_bytes:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A body may have at most {max_bytes} bytes.")
        try:
            body = await request.body()
        except ClientDisconnect:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "The body of the request is incomplete.") from None
        request.state.delivery = await asyncio.to_thread(self._check_signature, request, webhook, body)

    def _check_signature(self, request: Request, webhook: Webhook, body: bytes) -> SignedRequest:
        try:
            return SignedRequest(webhook, self._hooks.verify_event(webhook, request.headers, body), body)
        except BadSignature as error:
            self.reject_request(request, webhook, str(error))
            raise

    def reject_request(self, request: Request, webhook: Webhook, reason: str) -> None:
        """Count and record a rejected webhook request; raises ``TooManyAttempts`` after too many of them.

        Wrong signatures never block a valid one from the same address: a proxy may send the requests of all senders.
        """
        address = request.client.host if request.client else ""
        self._throttle.record_failure(address)
        self._hooks.count_refused_event(webhook, reason, address)


def signed_request(request: Request) -> SignedRequest:
    """Return the webhook, the signed delivery and the body of a request whose signature was checked."""
    signed: SignedRequest = request.state.delivery
    return signed
