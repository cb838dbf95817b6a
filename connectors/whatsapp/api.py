"""The one way to WhatsApp's Graph API: each call is made once, and what goes wrong is told apart."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

import httpx

from connectors.whatsapp.errors import Unreachable, Unsure, verdict
from maestro.domain.errors import ConfigurationError
from maestro.domain.hosts import LOCAL_NAMES
from maestro.domain.texts import tidied

BASE_URL = "https://graph.facebook.com"
CALL_SECONDS = 20.0
"""How long one call may take from its first byte to its last."""
CONNECT_SECONDS = 10.0
MAX_ANSWER = 1024 * 1024
"""Bytes of the longest answer that is read; Meta's have a few hundred."""
UPLOAD_SECONDS = 180.0
"""How long WhatsApp may take to get a file, and to look into it."""
PRODUCT = {"messaging_product": "whatsapp"}
BAD_PROXY = (
    "the proxy that the environment names (HTTPS_PROXY or ALL_PROXY) is none that WhatsApp can be reached through: set "
    "an address such as http://proxy.example:3128, or name graph.facebook.com in NO_PROXY"
)

Fields = Mapping[str, Any]

_NOT_ASKED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)


class Graph:
    """Calls on behalf of one number; nobody logs them, for their addresses hold ids and their bodies what was said."""

    def __init__(self, token: str, number_id: str, version: str, base_url: str = "") -> None:
        base = (base_url or BASE_URL).rstrip("/")
        self._number = number_id
        try:
            self._http = httpx.AsyncClient(
                base_url=f"{base}/{version}/",
                headers={"Authorization": f"Bearer {token}"},
                timeout=httpx.Timeout(CALL_SECONDS, connect=CONNECT_SECONDS),
                trust_env=urlsplit(base).hostname not in LOCAL_NAMES,
                # A connection that is kept may be closed at the other end just when we write into it, and then nobody
                # knows whether a message was sent; so each call has one of its own.
                limits=httpx.Limits(max_keepalive_connections=0),
            )
        except (ImportError, ValueError, httpx.InvalidURL):  # its text holds the proxy's address
            raise ConfigurationError(BAD_PROXY) from None

    async def number(self, fields: str) -> Fields:
        """Return what is known of the number; raises a ``GraphTrouble``."""
        return await self._called(
            self._http.build_request("GET", self._number, params={"fields": fields}), CALL_SECONDS
        )

    async def media(self, media_id: str) -> Fields:
        """Return where a file is and what it is; raises a ``GraphTrouble``."""
        asked = self._http.build_request("GET", media_id, params={"phone_number_id": self._number})
        return await self._called(asked, CALL_SECONDS)

    async def message(self, body: Fields) -> Fields:
        """Send a message, a reaction or a receipt; raises a ``GraphTrouble``."""
        asked = self._http.build_request("POST", f"{self._number}/messages", json={**PRODUCT, **body})
        return await self._called(asked, CALL_SECONDS)

    async def upload(self, content: bytes, filename: str, content_type: str) -> str:
        """Bring a file and return the id under which it is sent; raises a ``GraphTrouble``."""
        asked = self._http.build_request(
            "POST",
            f"{self._number}/media",
            data={**PRODUCT, "type": content_type},
            files={"file": (filename, content, content_type)},
            timeout=httpx.Timeout(UPLOAD_SECONDS, connect=CONNECT_SECONDS),
        )
        answer = await self._called(asked, UPLOAD_SECONDS)
        media_id = str(answer.get("id") or "")
        if not media_id:
            raise Unsure("WhatsApp took the file and gave it no id")
        return media_id

    async def _called(self, request: httpx.Request, seconds: float) -> Fields:
        try:
            async with asyncio.timeout(seconds):
                async with aclosing(await self._http.send(request, stream=True)) as response:
                    answer = _object(await _body(response))
        except _NOT_ASKED as error:
            raise Unreachable(f"WhatsApp cannot be reached ({type(error).__name__})") from None
        except (httpx.HTTPError, TimeoutError, OSError) as error:
            raise Unsure(f"the connection to WhatsApp broke ({type(error).__name__})") from None
        if not response.is_success or "error" in answer:
            raise verdict(response.status_code, answer, response.headers.get("retry-after", ""))
        return answer


async def _body(response: httpx.Response) -> bytes:
    """Return what was answered, nothing where that is no answer of WhatsApp's but much too long for one."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > MAX_ANSWER:
            return b""
    return bytes(body)


def _object(body: bytes) -> Fields:
    try:
        answer = tidied(json.loads(body))
    except (ValueError, RecursionError):  # the latter of one that is nested thousands deep
        return {}
    return answer if isinstance(answer, dict) else {}
