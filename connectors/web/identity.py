"""The authentication of web users by tickets, keys and resume tokens, and the local owner.

See docs/decisions.md: web identity.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ulid import ULID

from connectors.base import ConnectorContext, Identity, IdentityRole
from connectors.web.config import DASHBOARD_CHANNEL, WebConfig
from connectors.web.frames import WebCredentials
from maestro.domain.errors import Unauthorized
from maestro.domain.network import Throttle

LIFETIME = timedelta(days=30)
"""The lifetime of a user's resume token; an owner's token has the lifetime of a dashboard login."""
PURPOSE = b"maestro web resume token 1\n"
OWNERS = b"maestro web owner token 1\n"
INSTANCE = b"maestro web instance\n"


@dataclass(frozen=True)
class WebUser:
    """An authenticated web user; ``dashboard`` is true for users of the dashboard and for the local owner.

    ``bot`` marks an automated client. A client with the key may declare itself a bot; a bot stays one. ``since`` is the
    time of an owner's last login without a resume token, in seconds since 1970.
    """

    identity: Identity
    dashboard: bool = False
    since: int | None = None
    bot: bool = False

    @property
    def is_owner(self) -> bool:
        """Whether this user has the rights of the owner."""
        return self.dashboard or self.identity.role is IdentityRole.OWNER

    def may_open(self, channel: str) -> bool:
        """Tell whether this user may use the channel."""
        return self.dashboard or not channel.startswith(DASHBOARD_CHANNEL)


@dataclass(frozen=True)
class _Signer:
    """The signer of the resume tokens of owners or of other users: its key, and the lifetime of its tokens."""

    key: bytes
    lifetime: timedelta

    def sign_text(self, body: str) -> str:
        return _encode_base64(hmac.digest(self.key, PURPOSE + body.encode(), "sha256"))


class ResumeTokens:
    """The signed tokens with which a returning client is recognised as the same user.

    A user's token is valid for 30 days, and each visit gives a new token. An owner's token expires ``owner_hours``
    after the login, however often it is renewed. A change of the password or key revokes it at once.
    """

    def __init__(self, config: WebConfig, clock: Callable[[], datetime]) -> None:
        self._key = config.signing_key
        self._clock = clock
        secrets = config.password_digest + text_digest(config.api_key)
        self._users = _Signer(self._key, LIFETIME)
        self._owners = _Signer(hmac.digest(self._key, OWNERS + secrets, "sha256"), timedelta(hours=config.owner_hours))

    @property
    def installation_id(self) -> str:
        """An id of this installation, which changes only with its signing key."""
        return hmac.new(self._key, INSTANCE, hashlib.sha256).hexdigest()[:16]

    def issue_token(self, web_user: WebUser) -> str:
        """Return a new resume token for this user."""
        identity = web_user.identity
        now = int(self._clock().timestamp())
        claims = {
            "user": identity.user_id,
            "name": identity.user_name,
            "role": identity.role.value,
            "dashboard": web_user.dashboard,
            "bot": web_user.bot,
            "issued": now if web_user.since is None else web_user.since,
        }
        body = _encode_base64(json.dumps(claims, separators=(",", ":")).encode())
        return f"{body}.{self._signer_for(web_user).sign_text(body)}"

    def is_signed(self, token: str) -> bool:
        """Tell whether this installation signed a token, expired or not."""
        return self._find_signer(token) is not None

    def read_user(self, token: str) -> WebUser:
        """Return the user of a token; raises ``Unauthorized`` when it is forged, revoked or expired."""
        kind, body = self._find_signer(token), token.partition(".")[0]
        if kind is None:
            raise _invalid_token()
        try:
            claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except binascii.Error as error:
            raise _invalid_token() from error
        identity = Identity(claims["user"], claims["name"], IdentityRole(claims["role"]))
        # Tokens of older releases, which had no web bots, have no ``bot`` claim.
        web_user = WebUser(identity, dashboard=claims["dashboard"], bot=claims.get("bot", False))
        if self._signer_for(web_user) is not kind:
            raise _invalid_token()
        if self._clock().timestamp() - claims["issued"] > kind.lifetime.total_seconds():
            raise Unauthorized("The resume token has expired; authenticate again without it.")
        return replace(web_user, since=claims["issued"]) if web_user.is_owner else web_user

    def _signer_for(self, web_user: WebUser) -> _Signer:
        return self._owners if web_user.is_owner else self._users

    def _find_signer(self, token: str) -> _Signer | None:
        body, _, signature = token.partition(".")
        kinds = (self._users, self._owners)
        return next(
            (kind for kind in kinds if hmac.compare_digest(kind.sign_text(body).encode(), signature.encode())), None
        )


class WebAuthenticator:
    """The authentication of clients; a client cannot choose its user id."""

    def __init__(
        self, config: WebConfig, context: ConnectorContext, tokens: ResumeTokens, clock: Callable[[], datetime]
    ) -> None:
        self._config = config
        self._context = context
        self._tokens = tokens
        self._throttle = Throttle(clock, "keys")

    async def authenticate_user(self, credentials: WebCredentials, caller: str) -> WebUser:
        """Return the user of these credentials; ``caller`` is the client's network address.

        Raises ``Unauthorized`` with the remedy, and ``TooManyAttempts`` after too many wrong keys.

        A ticket is used first. Else a resume token restores its user, and the key alone creates a new user. Without
        credentials the local user is the owner, if the configuration allows it.
        """
        if credentials.ticket:
            identity = await self._context.redeem(credentials.ticket)
            if identity is None:
                raise Unauthorized("The ticket is unknown, used or expired; ask the dashboard for a new one.")
            return _with_name(WebUser(identity, dashboard=True), credentials.user_name)
        knows_key = await self._knows_key(credentials.api_key, caller)
        if credentials.resume_token:
            return _with_name(
                add_bot_mark(self._tokens.read_user(credentials.resume_token), credentials), credentials.user_name
            )
        if knows_key:
            return add_bot_mark(
                WebUser(Identity(f"web-{ULID()}", credentials.user_name, IdentityRole.USER)), credentials
            )
        if self._config.local_owner:
            return WebUser(Identity("local", credentials.user_name or "you", IdentityRole.OWNER), dashboard=True)
        raise Unauthorized("Authenticate with the apiKey, or with a ticket from the dashboard.")

    def read_bearer(self, value: str) -> WebCredentials:
        """Read an Authorization header's token: a resume token if this installation signed it, else the key."""
        return WebCredentials(resume_token=value) if self._tokens.is_signed(value) else WebCredentials(api_key=value)

    async def _knows_key(self, api_key: str, caller: str) -> bool:
        expected = self._config.api_key
        if not api_key or (self._config.local_owner and not expected):
            return False
        if expected:
            await asyncio.sleep(self._throttle.answer_delay(caller).total_seconds())
        if not expected or not hmac.compare_digest(text_digest(api_key), text_digest(expected)):
            if expected:
                self._throttle.record_failure(caller)
            raise Unauthorized("The apiKey is wrong, or the resume token sent in its place is not valid.")
        return True


def add_bot_mark(web_user: WebUser, credentials: WebCredentials) -> WebUser:
    """Mark a user as a bot if the client declares itself one; the owner is never a bot."""
    return replace(web_user, bot=web_user.bot or (credentials.bot and not web_user.is_owner))


def _with_name(web_user: WebUser, user_name: str) -> WebUser:
    return replace(web_user, identity=replace(web_user.identity, user_name=user_name)) if user_name else web_user


def text_digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _invalid_token() -> Unauthorized:
    return Unauthorized("The resume token is not valid; authenticate again without it.")


def _encode_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
