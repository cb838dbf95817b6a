"""The Slack connector: one app in one workspace, over Socket Mode or the Events API."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from pydantic import SecretStr
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from starlette.routing import BaseRoute

from connectors.backoff import SendRateLimiter, backoff_seconds
from connectors.base import Capabilities, Connector, ConnectorContext, ConnectorState, Idempotency, LengthUnit
from connectors.capabilities import Markup, PlatformTransport
from connectors.failures import (
    AccountRefused,
    FailureScope,
    FetchFailure,
    NotDispatched,
    PermanentFetch,
    PermanentSend,
    RetryableFetch,
    SendFailure,
)
from connectors.platforms import Instance
from connectors.slack import inbound, send
from connectors.slack.api import (
    MISSING_SCOPE,
    NO_THREAD,
    Fields,
    SlackRefused,
    SlackTrouble,
    call_slack,
    fetch_failure,
    make_client,
    refused_account,
    search_failure,
    send_failure,
    slack_errors,
)
from connectors.slack.catch_up import SlackCatchUp, SlackHistory
from connectors.slack.config import APP_TOKEN, BOT_TOKEN, PLATFORM, SIGNING_SECRET, SlackOptions
from connectors.slack.events import SlackEndpoint, SlackEventReceiver, SlackSocket
from connectors.slack.inbound import SlackInbound, SlackUserDirectory
from connectors.slack.receive import TS, SlackBot
from connectors.slack.send import mrkdwn
from maestro.domain.errors import ConfigurationError
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt
from maestro.fetch import FetchAccess, FetchFailed, FetchHead, FetchLimits, FetchRefused, download

SCOPES_HEADER = "x-oauth-scopes"
WRITE, REACT = "chat:write", "reactions:write"
WISHED = ("channels:history", "im:history", "files:read", "users:read")
"""Scopes without which messages are missed, cannot be found again, or have no files and names."""

HOSTS = frozenset({"files.slack.com", "slack-files.com"})
SECONDS = 120.0
HTML = "text/html"

MAX_LENGTH = 3_900
"""Code points of one message; Slack advises at most 4,000 and cuts what is much longer."""
TYPING_SECONDS = 90.0
"""Slack shows a status for two minutes."""
MAX_FILE_BYTES = 1024**3

log = structlog.get_logger(__name__)


def bot_of(account: str, answer: AsyncSlackResponse) -> SlackBot:
    """Return who a token is; raises ``AccountRefused`` when it is nobody who can post."""
    granted = _granted(answer)
    if granted and WRITE not in granted:
        raise AccountRefused(f"the {BOT_TOKEN} lacks the scope {WRITE}: add it and install the app again")
    if not answer.get("bot_id"):
        raise AccountRefused(f"the {BOT_TOKEN} is a person's: copy the one that begins with xoxb-")
    return SlackBot(account, str(answer["team_id"]), str(answer["user_id"]), str(answer["bot_id"]), str(answer["user"]))


def missing_scopes(answer: AsyncSlackResponse, options: SlackOptions) -> str:
    """Return what an operator is to be told of scopes without which something does not work, "" when all are there."""
    granted = _granted(answer)
    wished = (*WISHED, REACT) if options.ack_reaction else WISHED
    missing = [scope for scope in wished if granted and scope not in granted]
    return f"; it lacks the scopes {', '.join(missing)}" if missing else ""


def _granted(answer: AsyncSlackResponse) -> frozenset[str]:
    """Return the scopes of a token, none where Slack does not say."""
    told = {name.lower(): value for name, value in answer.headers.items()}.get(SCOPES_HEADER, "")
    return frozenset(scope.strip() for scope in told.split(",") if scope.strip())


class SlackMedia:
    """Slack's files; they are private, so the bot's token is shown to the hosts they are at and to nobody else."""

    def __init__(self, web: AsyncWebClient, token: SecretStr, options: SlackOptions) -> None:
        self._web = web
        self._most = options.max_media_bytes
        own = frozenset(host.lower() for host in options.media_hosts)
        self._plain = own
        self._access = FetchAccess(hosts=HOSTS | own, private_hosts=own, bearer=token)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Put a file into the folder and return its path; raises a ``FetchFailure``."""
        self._check_size(attachment.size)
        try:
            file = (await call_slack(self._web.files_info(file=attachment.id))).get("file") or {}
        except SlackTrouble as trouble:
            raise fetch_failure(trouble) from None
        self._check_size(int(file.get("size") or 0))
        return await self._download(file, folder / "file")

    async def _download(self, file: Fields, path: Path) -> Path:
        url = str(file.get("url_private_download") or file.get("url_private") or "")
        if urlsplit(url).scheme != "https" and (urlsplit(url).hostname or "") not in self._plain:
            raise PermanentFetch("the file is not at an https address")
        try:
            head = await download(url, path, FetchLimits(self._most, SECONDS), self._access)
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


def _failure(head: FetchHead, expected: str) -> FetchFailure | None:
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


def connect(instance: Instance, context: ConnectorContext) -> Connector:
    """Make the connector of an account, by the way its messages arrive."""
    options = instance.options
    if not isinstance(options, SlackOptions):
        raise ConfigurationError(f"slack/{instance.account}: these are no options of Slack")
    return (
        SlackEventsConnector(instance, context, options)
        if options.mode == "events"
        else SlackConnector(instance, context, options)
    )


def _capabilities(transport: PlatformTransport, options: SlackOptions) -> Capabilities:
    return Capabilities(
        max_length=MAX_LENGTH,
        unit=LengthUnit.CODE_POINTS,
        typing_interval=TYPING_SECONDS,
        idempotency=Idempotency.RECONCILE,
        markup=Markup.OWN,
        transport=transport,
        max_file_bytes=MAX_FILE_BYTES,
        catches_up=True,
        max_buttons=send.MAX_BUTTONS,
        edit_interval=options.streaming_seconds if options.streaming else 0,
    )


class SlackConnector:
    """An app that listens over a socket; it needs no address that others can reach."""

    platform = PLATFORM

    def __init__(self, instance: Instance, context: ConnectorContext, options: SlackOptions) -> None:
        self.account = instance.account
        self.token_digest = instance.token_digest
        self.capabilities = _capabilities(PlatformTransport.SOCKET, options)
        self.ears = SlackEventReceiver(self._refuse)
        self._context = context
        self._options = options
        self._app_token = instance.secret(APP_TOKEN)
        self._web = make_client(instance.secret(BOT_TOKEN), options.base_url)
        self._people = SlackUserDirectory(self._web)
        self._catch_up = SlackCatchUp(context, SlackHistory(self._web, options.history_seconds), options)
        self._media = SlackMedia(self._web, SecretStr(instance.secret(BOT_TOKEN)), options)
        self._pace = SendRateLimiter(lambda _: options.pace_seconds)
        self._inbound: SlackInbound | None = None
        self._lacking = ""
        self._shows_typing = self._reacts = True
        self._refusal: asyncio.Future[AccountRefused] | None = None

    async def run(self) -> None:
        """Listen until cancelled; raises ``AccountRefused`` when Slack does not let us, now or later."""
        self._refusal = asyncio.get_running_loop().create_future()
        try:
            await self._context.report(ConnectorState.STARTING)
            us = await self._introduced()
            self._inbound = SlackInbound(self._context, us, self._people, self._catch_up, self._options.channels)
            self.ears.open(self._inbound, inbound.SlackButtons(self._context, us, partial(send.whisper, self._web)))
            await self._until_refused(self._listen(), self._catch_up.work(self._inbound))
        except AccountRefused as refused:
            await self._context.report(ConnectorState.FAILED, str(refused))
            raise

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Post a chunk, or its content as a file, once; raises a ``SendFailure``."""
        await self._pace.wait(message.address.channel)
        try:
            return await (send.upload if message.filename else send.post)(self._web, message)
        except SlackTrouble as trouble:
            raise self._failed(trouble, spare=bool(message.filename)) from None

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Look for a message by its key; raises ``AmbiguousSend`` while Slack does not say."""
        try:
            return await send.find(self._web, message)
        except SlackTrouble as trouble:
            if isinstance(trouble, SlackRefused) and trouble.code == NO_THREAD:
                return None
            raise search_failure(trouble) from None

    async def edit(self, message: OutgoingMessage) -> None:
        """Write a message of ours anew; raises a ``SendFailure``."""
        try:
            await send.edit(self._web, message)
        except SlackTrouble as trouble:
            raise self._failed(trouble, spare=False) from None

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Put the reaction of the settings to a message; a command and a press are none, and have no reaction."""
        emoji = self._options.ack_reaction.strip(":")
        if not emoji or not self._reacts or not TS.fullmatch(message_id):
            return
        try:
            await send.react(self._web, address, message_id, emoji)
        except SlackTrouble as trouble:
            if isinstance(trouble, SlackRefused) and trouble.code == MISSING_SCOPE:
                self._reacts = False
                log.warning("slack.cannot_react", account=self.account, reason=str(trouble))
                return
            raise send_failure(trouble, spare=True) from None

    async def typing(self, address: Address) -> None:
        """Show in a thread that an answer is being written; elsewhere Slack has no way to."""
        if not address.thread or not self._shows_typing:
            return
        try:
            await send.show_typing(self._web, address)
        except SlackTrouble as trouble:
            self._shows_typing = refused_account(trouble, BOT_TOKEN) is None
            raise NotDispatched(str(trouble)) from None

    def render(self, text: str) -> str:
        """Return Markdown as Slack's own markup."""
        return mrkdwn(text)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Get a file by its id; raises a ``FetchFailure``."""
        return await self._media.fetch(attachment, folder)

    async def catch_up(self) -> None:
        """Take in what every known channel has after its cursor, within the caps of the settings."""
        if self._inbound is not None:
            self._catch_up.look_again()
            await self._catch_up.through(self._inbound)

    def listening(self) -> None:
        """Begin to catch up: before this, events may have been lost."""
        self._catch_up.look_again()

    async def connected(self) -> None:
        """Tell operators that messages come in."""
        await self._context.report(ConnectorState.RUNNING, f"Socket Mode{self._lacking}")

    async def broken(self, why: str) -> None:
        """Tell operators that none do."""
        log.warning("slack.disconnected", account=self.account, reason=why)
        await self._context.report(ConnectorState.DEGRADED, why)

    def _failed(self, trouble: SlackTrouble, *, spare: bool) -> SendFailure:
        """Return how a send ended; the run ends with it when only an operator can help."""
        failure = send_failure(trouble, spare=spare)
        if isinstance(failure, PermanentSend) and failure.scope is FailureScope.ACCOUNT:
            self._refuse(AccountRefused(str(failure)))
        return failure

    async def _listen(self) -> None:
        await SlackSocket(self._web, self._app_token, self.ears, self).run()

    async def _introduced(self) -> SlackBot:
        """Ask Slack who we are, until it says so."""
        for pause in backoff_seconds():
            await asyncio.sleep(pause)
            try:
                with slack_errors():
                    answer = await self._web.auth_test()
            except SlackTrouble as trouble:
                refused = refused_account(trouble, BOT_TOKEN)
                if refused is not None:
                    raise refused from None
                await self.broken(str(trouble))
            else:
                self._lacking = missing_scopes(answer, self._options)
                return replace(bot_of(self.account, answer), every_line=not self._options.require_mention)
        raise AssertionError("the pauses never end")

    async def _until_refused(self, *work: Coroutine[None, None, None]) -> None:
        """Do everything at once until something fails or Slack refuses us."""
        working = [asyncio.create_task(one) for one in (*work, self._refused())]
        try:
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            for one in working:
                one.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    async def _refused(self) -> None:
        assert self._refusal is not None
        raise await self._refusal

    def _refuse(self, refused: AccountRefused) -> None:
        """End the run: only an operator can help."""
        if self._refusal is not None and not self._refusal.done():
            self._refusal.set_result(refused)


class SlackEventsConnector(SlackConnector):
    """An app to which Slack posts, on the web connector's port."""

    def __init__(self, instance: Instance, context: ConnectorContext, options: SlackOptions) -> None:
        super().__init__(instance, context, options)
        self.capabilities = _capabilities(PlatformTransport.WEBHOOK, options)
        self._webhook = SlackEndpoint(instance.secret(SIGNING_SECRET), self.ears)

    def routes(self) -> Sequence[BaseRoute]:
        """Return where Slack posts: ``events``, ``commands`` and ``interactive`` below its own path."""
        return self._webhook.routes()

    async def _listen(self) -> None:
        self.listening()
        where = f"/platforms/slack/{self.account}/events"
        await self._context.report(ConnectorState.RUNNING, f"Events API, {where}{self._lacking}")
        await asyncio.Event().wait()
