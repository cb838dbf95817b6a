"""Fetches the files of messages: a fresh link for each by its id, from Meta's own host, proven by its checksum."""

import asyncio
import hashlib
import hmac
from http import HTTPStatus
from pathlib import Path

from pydantic import SecretStr

from connectors.outcomes import PermanentFetch, RetryableFetch
from connectors.whatsapp.api import Fields, Graph
from connectors.whatsapp.config import WhatsAppOptions
from connectors.whatsapp.errors import GraphTrouble, fetch_failure
from maestro.domain.messages import Attachment
from maestro.fetch import Access, FetchFailed, FetchRefused, Limits, download

HOSTS = frozenset({"lookaside.fbsbx.com"})
HTTPS = frozenset({443})
SECONDS = 120.0
TRIES = 2
"""What arrives may be broken; then it is fetched once more."""


class Media:
    """WhatsApp's files; a link lives for five minutes, and is worth nothing without the token."""

    def __init__(self, graph: Graph, token: SecretStr, options: WhatsAppOptions) -> None:
        self._graph = graph
        self._most = options.max_media_bytes
        own = frozenset(host.lower() for host in options.media_hosts)
        self._access = Access(hosts=HOSTS | own, private_hosts=own, ports=frozenset() if own else HTTPS, bearer=token)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Put a file into the folder and return its path; raises a ``FetchFailure``."""
        self._check_size(attachment.size)
        if not attachment.id.isalnum():
            raise PermanentFetch("this is no id of a file")  # it becomes a part of an address
        for number in range(TRIES):
            path = folder / str(number)
            told = await self._link(attachment.id)
            status = await self._download(str(told.get("url") or ""), path)
            if status != HTTPStatus.OK:
                raise _refused(status)
            if await asyncio.to_thread(_is_whole, path, told):
                return path
        raise PermanentFetch("the file is another one than WhatsApp's checksum says, again and again")

    async def _link(self, media_id: str) -> Fields:
        """Ask where a file is now, and what it is."""
        try:
            told = await self._graph.media(media_id)
        except GraphTrouble as trouble:
            raise fetch_failure(trouble) from None
        size = str(told.get("file_size") or "")
        self._check_size(int(size) if size.isdecimal() else 0)
        return told

    async def _download(self, url: str, path: Path) -> int:
        try:
            return (await download(url, path, Limits(self._most, SECONDS), self._access)).status
        except FetchRefused as error:
            raise PermanentFetch(f"the file may not be fetched: {error}") from None
        except FetchFailed as error:
            raise RetryableFetch(str(error)) from None

    def _check_size(self, size: int) -> None:
        if size > self._most:
            raise PermanentFetch(f"the file has {size:,} bytes, and at most {self._most:,} are fetched (maxMediaBytes)")


def _refused(status: int) -> PermanentFetch | RetryableFetch:
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return RetryableFetch(f"WhatsApp's file server answered {status}")
    return PermanentFetch(f"WhatsApp's file server answered {status}, to a fresh link")


def _is_whole(path: Path, told: Fields) -> bool:
    """Tell whether a file has its checksum; one that WhatsApp names none for is taken as it is."""
    expected = str(told.get("sha256") or "")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return not expected or hmac.compare_digest(found, expected.lower())
