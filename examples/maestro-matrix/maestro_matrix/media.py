"""The download of files, also those of other servers, from the account's homeserver, up to a size limit."""

import re
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, urlsplit

from pydantic import SecretStr

from connectors.failures import FetchFailure, PermanentFetch, RetryableFetch
from connectors.options import Options
from maestro.domain.messages import Attachment
from maestro.fetch import FetchAccess, FetchFailed, FetchLimits, FetchRefused, download

SECONDS = 120.0
MXC = re.compile(r"mxc://([A-Za-z0-9.:\[\]-]+)/([A-Za-z0-9_-]+)")
TEMPORARY = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class Media:
    """The downloads of one account; the token is sent to the homeserver only, and to no host it redirects to."""

    def __init__(self, token: SecretStr, options: Options) -> None:
        self._address, self._most = options.base_url.rstrip("/"), options.max_media_bytes
        host = (urlsplit(self._address).hostname or "").lower()
        # The operator configured these hosts, and a local homeserver has a private address.
        hosts = frozenset({host, *(other.lower() for other in options.media_hosts)})
        self._access = FetchAccess(hosts=hosts, private_hosts=hosts, bearer=token)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into the folder and return its path; raises a ``FetchFailure``."""
        found = MXC.fullmatch(attachment.id)
        if found is None:
            raise PermanentFetch("this is not the address of a file in Matrix")
        if attachment.size > self._most:
            raise PermanentFetch(
                f"it has {attachment.size:,} bytes, and at most {self._most:,} are fetched (maxMediaBytes)"
            )
        url = f"{self._address}/_matrix/client/v1/media/download/{quote(found[1], safe='')}/{found[2]}"
        path = folder / "file"
        try:
            head = await download(url, path, FetchLimits(self._most, SECONDS), self._access)
        except FetchRefused as error:
            raise PermanentFetch(str(error)) from None
        except FetchFailed as error:
            raise RetryableFetch(str(error)) from None
        if head.status != HTTPStatus.OK:
            raise _failure(head.status)
        return path


def _failure(status: int) -> FetchFailure:
    is_temporary = status in TEMPORARY or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return (RetryableFetch if is_temporary else PermanentFetch)(f"the homeserver answered {status}")
