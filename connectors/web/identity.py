"""Who is who on the web connector: tickets, keys, resume tokens, and the local person (decision 19)."""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ulid import ULID

from connectors.base import ConnectorContext, Identity, Role
from connectors.web.config import DASHBOARD_CHANNEL, WebConfig
from connectors.web.errors import Unauthorized
from connectors.web.frames import Credentials

LIFETIME = timedelta(days=30)
PURPOSE = b"maestro web resume token 1\n"
INSTANCE = b"maestro web instance\n"
LOCAL_USER = "local"


@dataclass(frozen=True)
class Guest:
    """A person the server knows; ``dashboard`` says that a ticket, or being local, opened the operator's channels."""

    identity: Identity
    dashboard: bool = False

    def may_open(self, channel: str) -> bool:
        """Tell whether the channel's name is one this person may use at all."""
        return self.dashboard or not channel.startswith(DASHBOARD_CHANNEL)


class ResumeTokens:
    """Signs and reads the tokens by which a client is the same user again; valid for 30 days."""

    def __init__(self, key: bytes, clock: Callable[[], datetime]) -> None:
        self._key = key
        self._clock = clock

    @property
    def instance(self) -> str:
        """A name for this installation, as lasting as its key."""
        return hmac.new(self._key, INSTANCE, hashlib.sha256).hexdigest()[:16]

    def issue(self, guest: Guest) -> str:
        """Return a token that stands for this person until it expires."""
        identity = guest.identity
        claims = {
            "user": identity.user_id,
            "name": identity.user_name,
            "role": identity.role.value,
            "dashboard": guest.dashboard,
            "issued": int(self._clock().timestamp()),
        }
        body = _encode(json.dumps(claims, separators=(",", ":")).encode())
        return f"{body}.{_encode(self._sign(body))}"

    def read(self, token: str) -> Guest:
        """Return the person behind a token; raises ``Unauthorized`` when it is forged or older than 30 days."""
        body, _, signature = token.partition(".")
        if not hmac.compare_digest(_encode(self._sign(body)).encode(), signature.encode()):
            raise Unauthorized("The resume token is not valid; authenticate again without it.")
        claims = json.loads(_decode(body))
        age = self._clock().timestamp() - claims["issued"]
        if age > LIFETIME.total_seconds():
            raise Unauthorized("The resume token has expired; authenticate again without it.")
        identity = Identity(claims["user"], claims["name"], Role(claims["role"]))
        return Guest(identity, dashboard=claims["dashboard"])

    def _sign(self, body: str) -> bytes:
        return hmac.new(self._key, PURPOSE + body.encode(), hashlib.sha256).digest()


class Doorman:
    """Decides who a client is; nobody chooses a user id."""

    def __init__(self, config: WebConfig, context: ConnectorContext, tokens: ResumeTokens) -> None:
        self._config = config
        self._context = context
        self._tokens = tokens

    async def admit(self, given: Credentials) -> Guest:
        """Return the person these credentials stand for; raises ``Unauthorized`` saying what to do.

        A ticket beats everything; a resume token makes a client the user it was; the right key without one makes a
        new user; without any credentials the local person is the owner, where the configuration allows that.
        """
        if given.ticket:
            return _named(await self._redeemed(given.ticket), given.user_name)
        knows_key = self._knows_key(given.api_key)
        if given.resume_token:
            return _named(self._remembered(given.resume_token), given.user_name)
        if knows_key:
            return Guest(Identity(f"web-{ULID()}", given.user_name, Role.USER))
        if self._config.local_owner:
            return Guest(Identity(LOCAL_USER, given.user_name or "you", Role.OWNER), dashboard=True)
        raise Unauthorized("Authenticate with the apiKey, or with a ticket from the dashboard.")

    def bearer(self, value: str) -> Credentials:
        """Read an Authorization header's token, which is the key or, failing that, a resume token."""
        if self._config.api_key and _same(value, self._config.api_key):
            return Credentials(api_key=value)
        return Credentials(resume_token=value)

    def _knows_key(self, given: str) -> bool:
        if not given or (self._config.local_owner and not self._config.api_key):
            return False
        if not self._config.api_key or not _same(given, self._config.api_key):
            raise Unauthorized("The apiKey is wrong.")
        return True

    async def _redeemed(self, ticket: str) -> Guest:
        identity = await self._context.redeem(ticket)
        if identity is None:
            raise Unauthorized("The ticket is unknown, used or expired; ask the dashboard for a new one.")
        return Guest(identity, dashboard=True)

    def _remembered(self, token: str) -> Guest:
        guest = self._tokens.read(token)
        if guest.identity.user_id == LOCAL_USER and not self._config.local_owner:
            # Issued before a key or password was set: whoever held the machine then is not the owner for ever.
            raise Unauthorized("The resume token is from before a key was set; authenticate again without it.")
        return guest


def _named(guest: Guest, user_name: str) -> Guest:
    return replace(guest, identity=replace(guest.identity, user_name=user_name)) if user_name else guest


def _same(given: str, expected: str) -> bool:
    """Compare in constant time, whatever the lengths."""
    digests = (hashlib.sha256(value.encode("utf-8", "replace")).digest() for value in (given, expected))
    return hmac.compare_digest(*digests)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise Unauthorized("The resume token is not valid; authenticate again without it.") from error
