"""Fetches the files of messages: asked for anew by their ids, from Slack's own hosts, within a size."""

from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr
from slack_sdk.web.async_client import AsyncWebClient

from connectors.outcomes import FetchFailure, PermanentFetch, RetryableFetch
from connectors.slack.api import Fields, called
from connectors.slack.config import SlackOptions
from connectors.slack.errors import SlackTrouble, fetch_failure
from maestro.domain.messages import Attachment
from maestro.fetch import Access, FetchFailed, FetchRefused, Head, Limits, download

HOSTS = frozenset({"files.slack.com", "slack-files.com"})
SECONDS = 120.0
HTML = "text/html"


class Media:
    """Slack's files; they are private, so the bot's token is shown to the hosts they are at and to nobody else."""

    def __init__(self, web: AsyncWebClient, token: SecretStr, options: SlackOptions) -> None:
        self._web = web
        self._most = options.max_media_bytes
        own = frozenset(host.lower() for host in options.media_hosts)
        self._plain = own
        self._access = Access(hosts=HOSTS | own, private_hosts=own, bearer=token)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Put a file into the folder and return its path; raises a ``FetchFailure``."""
        self._check_size(attachment.size)
        try:
            file = (await called(self._web.files_info(file=attachment.id))).get("file") or {}
        except SlackTrouble as trouble:
            raise fetch_failure(trouble) from None
        self._check_size(int(file.get("size") or 0))
        return await self._download(file, folder / "file")

    async def _download(self, file: Fields, path: Path) -> Path:
        url = str(file.get("url_private_download") or file.get("url_private") or "")
        if urlsplit(url).scheme != "https" and (urlsplit(url).hostname or "") not in self._plain:
            raise PermanentFetch("the file is not at an https address")
        try:
            head = await download(url, path, Limits(self._most, SECONDS), self._access)
        except FetchRefused as error:
            raise PermanentFetch(str(error)) from None
        except FetchFailed as error:
            raise RetryableFetch(str(error)) from None
        failure = _failure(head, str(file.get("mimetype") or ""))
        if failure is not None:
            raise failure
        return path

    def _check_size(self, size: int) -> None:
        if size > self._most:
            raise PermanentFetch(f"the file has {size:,} bytes, and at most {self._most:,} are fetched (maxMediaBytes)")


def _failure(head: Head, expected: str) -> FetchFailure | None:
    """Return what is wrong with an answer, None when it is the file."""
    if head.status == HTTPStatus.OK:
        asks_to_sign_in = head.content_type.startswith(HTML) and not expected.startswith(HTML)
        return (
            PermanentFetch("Slack asks to sign in: does the app have the scope files:read?")
            if asks_to_sign_in
            else None
        )
    if head.status == HTTPStatus.TOO_MANY_REQUESTS or head.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return RetryableFetch(f"Slack answered {head.status}")
    return PermanentFetch(f"Slack answered {head.status}")
