"""The files of messages: limited downloads from the platform's own hosts, and the content of files to send."""

import asyncio
from http import HTTPStatus
from pathlib import Path

from pydantic import SecretStr

from connectors.failures import FetchFailure, PermanentFetch, RetryableFetch
from connectors.options import Options
from maestro.domain.messages import OutgoingMessage
from maestro.fetch import FetchAccess, Fetched, FetchFailed, FetchLimits, FetchRefused, download

HTTPS = frozenset({443})


async def read_content(message: OutgoingMessage) -> bytes:
    """Return the content of the file that a message sends."""
    return message.content.encode() if message.path is None else await asyncio.to_thread(message.path.read_bytes)


class MediaDownloads:
    """The file downloads of one account; the token ``bearer`` is sent only to the host of the file."""

    def __init__(
        self, platform: str, options: Options, hosts: frozenset[str], *, seconds: float = 120, bearer: str = ""
    ) -> None:
        self.own_hosts = frozenset(host.lower() for host in options.media_hosts)
        self._platform = platform
        self._limits = FetchLimits(options.max_media_bytes, seconds)
        ports = frozenset[int]() if self.own_hosts else HTTPS
        self._access = FetchAccess(
            hosts=hosts | self.own_hosts, private_hosts=self.own_hosts, ports=ports, bearer=SecretStr(bearer)
        )

    def check_size(self, size: int) -> None:
        """Raise ``PermanentFetch`` if the file size that the platform reports exceeds the limit."""
        if size > self._limits.max_bytes:
            most = f"the limit is {self._limits.max_bytes:,} (maxMediaBytes)"
            raise PermanentFetch(f"the file has {size:,} bytes; {most}")

    async def fetch(self, url: str, path: Path) -> Fetched:
        """Download a file to ``path``; raises a ``FetchFailure``."""
        head = await self.ask(url, path)
        if head.status != HTTPStatus.OK:
            raise self.failure_of(head.status)
        return head

    async def ask(self, url: str, path: Path) -> Fetched:
        """Download the content of an address and return the HTTP status; raises a ``FetchFailure``."""
        try:
            return await download(url, path, self._limits, self._access)
        except FetchRefused as refused:
            raise PermanentFetch(f"the file may not be downloaded: {refused}") from None
        except FetchFailed as failed:
            raise RetryableFetch(str(failed)) from None

    def failure_of(self, status: int) -> FetchFailure:
        """Translate an HTTP status into a download failure: server errors are retryable, refusals permanent."""
        is_temporary = status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return (RetryableFetch if is_temporary else PermanentFetch)(f"{self._platform}'s file server answered {status}")
