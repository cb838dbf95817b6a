"""Fetches the files of messages. A link to one holds the bot's token: it is used, and told to nobody."""

from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from connectors.outcomes import FetchFailure, PermanentFetch, RetryableFetch
from connectors.telegram.api import Line, translated
from connectors.telegram.config import TelegramOptions
from connectors.telegram.errors import TelegramTrouble, fetch_failure
from maestro.domain.messages import Attachment
from maestro.fetch import Access, FetchFailed, FetchRefused, Limits, download

HOSTS = frozenset({"api.telegram.org"})
HTTPS = frozenset({443})
SECONDS = 120.0
MOST_BYTES = 20 * 1000**2
"""Telegram gives bots no larger files; a server of one's own does."""


async def fetch(line: Line, options: TelegramOptions, attachment: Attachment, folder: Path) -> Path:
    """Put a file into the folder; raises a ``FetchFailure``. What is too large by Telegram's word is not asked for."""
    most = options.max_media_bytes
    if attachment.size > most:
        raise PermanentFetch(
            f"the file has {attachment.size:,} bytes, and at most {most:,} are fetched (maxMediaBytes)"
        )
    if attachment.size > MOST_BYTES and not options.base_url:
        raise PermanentFetch(f"the file has {attachment.size:,} bytes, and Telegram gives bots at most {MOST_BYTES:,}")
    path = folder / "file"
    failure = _failure(await _download(await _link(line, attachment), path, options))
    if failure is not None:
        raise failure
    return path


async def _link(line: Line, attachment: Attachment) -> str:
    """Ask where the file is; such a link is good for an hour."""
    try:
        with translated():
            found = await line.get_file(attachment.id)
    except TelegramTrouble as trouble:
        raise fetch_failure(trouble) from None
    link = found.file_path or ""
    if urlsplit(link).scheme not in ("http", "https"):
        raise PermanentFetch("Telegram does not say where the file is; a server run with --local keeps it to itself")
    return link


async def _download(url: str, path: Path, options: TelegramOptions) -> int:
    own = frozenset(host.lower() for host in options.media_hosts)
    access = Access(hosts=HOSTS | own, private_hosts=own, ports=frozenset() if own else HTTPS)
    try:
        return (await download(url, path, Limits(options.max_media_bytes, SECONDS), access)).status
    except FetchRefused as refused:
        raise PermanentFetch(f"the file may not be fetched: {refused}") from None
    except FetchFailed as failed:
        raise RetryableFetch(str(failed)) from None


def _failure(status: int) -> FetchFailure | None:
    """Return what is wrong with an answer, None when it is the file."""
    if status == HTTPStatus.OK:
        return None
    said = f"Telegram's file server answered {status}"
    is_passing = status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return RetryableFetch(said) if is_passing else PermanentFetch(said)
