"""The client of WhatsApp's Graph API; it makes each call once and explains a failure without quoting Meta's texts."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpx

from connectors.failures import AmbiguousSend, FailureScope, NotDispatched, PermanentSend, RetryableSend, SendFailure
from maestro.domain.errors import ConfigurationError
from maestro.domain.network import LOCAL_NAMES
from maestro.domain.texts import replace_unstorable

PAIR = 131056
WINDOW_CLOSED = 131047
WRONG_PARAM = 100
TOKEN_ENDED = 190
NO_SUCH_OBJECT = (WRONG_PARAM, 33)
"""The code and the subcode of an id that is unknown or that the token may not see."""
NO_SUCH_NUMBER = (
    "WhatsApp knows no such id, or the accessToken has no access: check the phoneNumberId, and give the system user "
    "the number's account as an asset"
)

EXPLANATIONS: Mapping[int, str] = {
    0: "the accessToken is not valid: make a new one for the system user and set it",
    3: "the app may not do this: give the system user's token whatsapp_business_messaging",
    4: "the app has made too many calls",
    10: "the token may not do this: give it whatsapp_business_messaging and the number's account as an asset",
    WRONG_PARAM: "WhatsApp rejects a parameter of the message",
    TOKEN_ENDED: "the accessToken has expired or was revoked: make a new one for the system user and set it",
    368: "the business account is blocked for breaking a policy: see Account quality in WhatsApp Manager",
    80007: "the business account has made too many calls",
    130403: "the user has blocked this number",
    130429: "the number has sent too many messages in a short time",
    130472: "WhatsApp does not deliver this message to this user",
    130497: "the business account may not write to users in this country",
    131005: "the token may not do this: give it whatsapp_business_messaging and the number's account as an asset",
    131008: "a required parameter of the message is missing",
    131009: "WhatsApp rejects the value of a parameter of the message",
    131021: "the number cannot write to itself",
    131026: "the user cannot be reached: not on WhatsApp, on an old version, or without accepting its new terms",
    131030: "the number is a test number, and the user is not on its list: add the user on the app's API Setup page",
    131031: "the business account is locked: see Account quality in WhatsApp Manager",
    131037: "the number's display name is not approved: see Phone numbers in WhatsApp Manager",
    131042: "the payment of the business account failed: see Billing in the business settings",
    131045: "the registration of the number is invalid: register the number again",
    WINDOW_CLOSED: "the user wrote more than 24 hours ago; the user's next message opens the chat again",
    131048: "the number may send less, because users blocked it or reported it as spam",
    131049: "WhatsApp does not deliver this message now, because the user got too many marketing messages",
    131050: "the user does not want marketing messages",
    131051: "WhatsApp does not support this type of message",
    131052: "WhatsApp could not download the user's file",
    131053: "WhatsApp does not accept this file",
    PAIR: "too many messages to this user in a short time",
    132000: "the template must have exactly one variable: see the setting template",
    132001: "there is no approved template of this name in this language: see template and templateLanguage",
    132005: "the text is too long for the template",
    132007: "the text breaks a rule for templates",
    132012: "the template's variable is not a text",
    132015: "the template is paused, because users rated it badly",
    132016: "the template is disabled",
    133010: "the number is not registered: register it on the app's API Setup page",
}
BUSY: Mapping[int, timedelta] = {
    4: timedelta(minutes=1),
    80007: timedelta(minutes=1),
    130429: timedelta(seconds=5),
    131048: timedelta(minutes=5),
    PAIR: timedelta(seconds=1),
}
"""The wait before a retry, by error code; after these errors WhatsApp did nothing."""
UNKNOWN_OUTCOME = frozenset({1, 2, 131000, 131016, 131057})
"""The codes of internal errors of WhatsApp, after which the outcome of the call is unknown."""
ACCOUNT = frozenset({0, 3, 10, TOKEN_ENDED, 368, 131005, 131031, 131037, 131045, 133010})
PERMISSIONS = range(200, 300)
CHANNEL = frozenset({130403, 130497, 131021, 131026, 131030, WINDOW_CLOSED, 131050})
DEFAULT_RETRY_AFTER = timedelta(seconds=30)
"""The wait after a rate limit for which WhatsApp names no time."""
MAX_RETRY_AFTER = timedelta(hours=1)
"""The longest wait, even if WhatsApp asks for more."""
MOST_DIGITS = 9

BASE_URL = "https://graph.facebook.com"
CALL_SECONDS = 20.0
"""The timeout of one call, in seconds."""
CONNECT_SECONDS = 10.0
MAX_ANSWER = 1024 * 1024
"""The longest answer that is read, in bytes; Meta's answers have a few hundred bytes."""
UPLOAD_SECONDS = 180.0
"""The timeout of an upload in seconds, in which WhatsApp also checks the file."""
NUMBER_FIELDS = "display_phone_number,verified_name,quality_rating"
PRODUCT = {"messaging_product": "whatsapp"}
BAD_PROXY = (
    "the proxy in the environment (HTTPS_PROXY or ALL_PROXY) cannot be used to reach WhatsApp: set "
    "an address like http://proxy.example:3128, or name graph.facebook.com in NO_PROXY"
)

Fields = Mapping[str, Any]

_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


class PairRateLimit(RetryableSend):
    """The rate limit of messages from one number to one user."""


def describe_code(code: int) -> str:
    """Return the explanation of an error code for the operator."""
    explanation = EXPLANATIONS.get(code) or (EXPLANATIONS[10] if code in PERMISSIONS else "")
    return f"WhatsApp reports {code}" + (f": {explanation}" if explanation else "")


def describe_errors(errors: object) -> str:
    """Return the reason why a sent message was not delivered, from the errors in Meta's status report."""
    codes = [error.get("code") for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    code = next((code for code in codes if isinstance(code, int)), None)
    return "WhatsApp could not deliver the message, and gives no reason" if code is None else describe_code(code)


def answer_failure(status: int, answer: Mapping[str, Any], retry_after: str) -> SendFailure:
    """Translate an unsuccessful answer into a send failure; ``retry_after`` is the header Retry-After or ""."""
    error = answer.get("error")
    fields = error if isinstance(error, dict) else {}
    code, subcode = _error_number(fields.get("code")), _error_number(fields.get("error_subcode"))
    if code in BUSY or status == HTTPStatus.TOO_MANY_REQUESTS:
        limit = PairRateLimit if code == PAIR else RetryableSend
        pause = _parse_retry_after(retry_after) or BUSY.get(code, DEFAULT_RETRY_AFTER)
        return limit(describe_code(code if code >= 0 else status), pause)
    has_no_code = code < 0 and status != HTTPStatus.UNAUTHORIZED
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or code in UNKNOWN_OUTCOME or has_no_code:
        return AmbiguousSend(f"WhatsApp answered {status}" + (f" with the error {code}" if code >= 0 else ""))
    if (code, subcode) == NO_SUCH_OBJECT:
        return PermanentSend(NO_SUCH_NUMBER, FailureScope.ACCOUNT, str(code))
    if status == HTTPStatus.UNAUTHORIZED and code not in EXPLANATIONS:
        return PermanentSend(describe_code(TOKEN_ENDED), FailureScope.ACCOUNT, str(TOKEN_ENDED))
    if code in ACCOUNT or code in PERMISSIONS:
        return PermanentSend(describe_code(code), FailureScope.ACCOUNT, str(code))
    scope = FailureScope.CHANNEL if code in CHANNEL else FailureScope.MESSAGE
    return PermanentSend(describe_code(code), scope, str(code))


def upload_failure(failure: SendFailure, content_type: str) -> SendFailure:
    """Return the send failure for a message with a file that could not be uploaded; the message was not sent."""
    if isinstance(failure, PermanentSend) and (failure.code, failure.scope) == (str(WRONG_PARAM), FailureScope.MESSAGE):
        return PermanentSend(f"WhatsApp accepts no file of the type {content_type}", FailureScope.MESSAGE)
    return NotDispatched(str(failure)) if isinstance(failure, AmbiguousSend) else failure


def _parse_retry_after(retry_after: str) -> timedelta | None:
    digits = retry_after.strip()
    if not (digits.isascii() and digits.isdecimal()):
        return None
    return MAX_RETRY_AFTER if len(digits) > MOST_DIGITS else min(timedelta(seconds=int(digits)), MAX_RETRY_AFTER)


def _error_number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


class GraphClient:
    """The API calls of one number; no call is logged, because URLs contain ids and bodies contain messages."""

    def __init__(self, token: str, number_id: str, version: str, base_url: str = "") -> None:
        base = (base_url or BASE_URL).rstrip("/")
        self._number = number_id
        try:
            self._http = httpx.AsyncClient(
                base_url=f"{base}/{version}/",
                headers={"Authorization": f"Bearer {token}"},
                timeout=httpx.Timeout(CALL_SECONDS, connect=CONNECT_SECONDS),
                trust_env=urlsplit(base).hostname not in LOCAL_NAMES,
                # Each call has its own connection: the server may close a reused connection while a request is
                # written, and then the outcome of the send would be unknown.
                limits=httpx.Limits(max_keepalive_connections=0),
            )
        # The error's text quotes the proxy's address, which may contain a password.
        except (ImportError, ValueError, httpx.InvalidURL):
            raise ConfigurationError(BAD_PROXY) from None

    async def read_number(self) -> Fields:
        """Return Meta's data about the number, which also shows that the token is valid; raises a ``SendFailure``."""
        return await self._send_request(self._http.build_request("GET", self._number, params={"fields": NUMBER_FIELDS}))

    async def read_media(self, media_id: str) -> Fields:
        """Return the download link and the type of a file; raises a ``SendFailure``."""
        return await self._send_request(
            self._http.build_request("GET", media_id, params={"phone_number_id": self._number})
        )

    async def post_message(self, body: Fields) -> Fields:
        """Send a message, a reaction or a receipt; raises a ``SendFailure``."""
        content = {**PRODUCT, **body}
        return await self._send_request(self._http.build_request("POST", f"{self._number}/messages", json=content))

    async def upload_file(self, content: bytes, filename: str, content_type: str) -> str:
        """Upload a file and return the id with which a message refers to the file; raises a ``SendFailure``."""
        request = self._http.build_request(
            "POST",
            f"{self._number}/media",
            data={**PRODUCT, "type": content_type},
            files={"file": (filename, content, content_type)},
            timeout=httpx.Timeout(UPLOAD_SECONDS, connect=CONNECT_SECONDS),
        )
        answer = await self._send_request(request, UPLOAD_SECONDS)
        media_id = str(answer.get("id") or "")
        if not media_id:
            raise AmbiguousSend("WhatsApp accepted the file but returned no id")
        return media_id

    async def _send_request(self, request: httpx.Request, seconds: float = CALL_SECONDS) -> Fields:
        try:
            async with asyncio.timeout(seconds):
                async with aclosing(await self._http.send(request, stream=True)) as response:
                    answer = await _read_answer(response)
        except _UNSENT as error:
            raise NotDispatched(f"WhatsApp cannot be reached ({type(error).__name__})") from None
        except (httpx.HTTPError, TimeoutError, OSError) as error:
            raise AmbiguousSend(f"the connection to WhatsApp broke ({type(error).__name__})") from None
        if not response.is_success or "error" in answer:
            raise answer_failure(response.status_code, answer, response.headers.get("retry-after", ""))
        return answer


async def _read_answer(response: httpx.Response) -> Fields:
    """Return the fields of an answer; empty if the answer is no JSON object or longer than ``MAX_ANSWER``."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_ANSWER:
            return {}
    try:
        answer = replace_unstorable(json.loads(body))
    except (ValueError, RecursionError):  # RecursionError: the JSON is nested thousands of levels deep
        return {}
    return answer if isinstance(answer, dict) else {}
