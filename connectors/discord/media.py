"""The files that messages refer to: a fresh link for each, from Discord's own hosts only."""

from http import HTTPStatus
from pathlib import Path

import discord

from connectors.base import PermanentFetch, RetryableFetch
from connectors.discord.config import DiscordOptions
from connectors.discord.errors import TROUBLE, fetch_failure
from connectors.discord.receive import files_of
from maestro.domain.messages import Attachment
from maestro.fetch import Access, FetchFailed, FetchRefused, Limits, download

HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
HTTPS = frozenset({443})
SECONDS = 60.0
TRIES = 2
"""A link may expire between its being given and used; then another is asked for, once."""
EXPIRED = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


async def fetch(client: discord.Client, options: DiscordOptions, attachment: Attachment, folder: Path) -> Path:
    """Download a file; raises a ``FetchFailure``. What is too large by Discord's word is not asked for."""
    limits = Limits(max_bytes=options.max_media_bytes, seconds=SECONDS)
    if attachment.size > limits.max_bytes:
        raise PermanentFetch(
            f"the file has {attachment.size:,} bytes, and at most {limits.max_bytes:,} are fetched (maxMediaBytes)"
        )
    status = 0
    for number in range(TRIES):
        status = await _download(await _link(client, attachment), folder / str(number), limits, _access(options))
        if status == HTTPStatus.OK:
            return folder / str(number)
        if status not in EXPIRED:
            raise RetryableFetch(f"Discord's file server answered {status}")
    raise PermanentFetch(f"Discord's file server answered {status}, to a fresh link too")


async def _link(client: discord.Client, attachment: Attachment) -> str:
    """Ask for the message of a file, because the link in it is new each time."""
    channel, message, number = (int(part) for part in attachment.id.split("/"))
    try:
        found = await client.get_partial_messageable(channel).fetch_message(message)
    except TROUBLE as error:
        raise fetch_failure(error) from None
    for file in files_of(found):
        if file.id == number:
            return file.url
    raise PermanentFetch("the file is no longer in its message")


async def _download(url: str, path: Path, limits: Limits, access: Access) -> int:
    try:
        return (await download(url, path, limits, access)).status
    except FetchRefused as refused:
        raise PermanentFetch(f"the file may not be fetched: {refused}") from None
    except FetchFailed as failed:
        raise RetryableFetch(str(failed)) from None


def _access(options: DiscordOptions) -> Access:
    own = frozenset(options.media_hosts)
    return Access(hosts=HOSTS | own, private_hosts=own, ports=frozenset() if own else HTTPS)
