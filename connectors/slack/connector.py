"""The Slack connector of one app in one workspace, over Socket Mode or the Events API."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from connectors.account import AccountConnector, MediaDownloads, SendRateLimiter, run_until_one_fails
from connectors.base import Capabilities, ConnectorContext, Idempotency, LengthUnit
from connectors.failures import (
    AccountRefused,
    FailureScope,
    NotDispatched,
    PermanentFetch,
    PermanentSend,
    SendFailure,
    fetch_failure,
)
from connectors.options import Instance
from connectors.slack import api
from connectors.slack.api import (
    MISSING_SCOPE,
    NO_THREAD,
    call_slack,
    make_client,
    render_mrkdwn,
    search_failure,
    slack_errors,
)
from connectors.slack.catch_up import SlackCatchUp, SlackHistory
from connectors.slack.inbound import SlackEndpoint, SlackInbound, SlackSocket
from connectors.slack.platform import APP_TOKEN, BOT_TOKEN, PLATFORM, SIGNING_SECRET, SlackOptions
from connectors.slack.receive import TS, SlackBot
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt

WRITE, REACT = "chat:write", "reactions:write"
RECOMMENDED_SCOPES = ("channels:history", "im:history", "files:read", "users:read")
"""Scopes without which the bot misses messages, cannot search for sent messages, or cannot read files and names."""

HOSTS = frozenset({"files.slack.com", "slack-files.com"})
HTML = "text/html"

MAX_LENGTH = 3_900
"""The most code points of one message; Slack advises at most 4,000 and truncates much longer ones."""
TYPING_SECONDS = 90.0
"""Seconds between two typing statuses; Slack shows one for two minutes."""
MAX_FILE_BYTES = 1024**3

log = structlog.get_logger(__name__)


class SlackConnector(AccountConnector):
    """The connector of one Slack app, which receives over Socket Mode or by requests of Slack's Events API."""

    platform = PLATFORM
    render = staticmethod(render_mrkdwn)

    def __init__(self, instance: Instance, context: ConnectorContext) -> None:
        super().__init__(instance, context)
        options = instance.options
        assert isinstance(options, SlackOptions)
        self._endpoint = SlackEndpoint(instance.secret(SIGNING_SECRET)) if options.mode == "events" else None
        self.capabilities = Capabilities(
            max_length=MAX_LENGTH,
            unit=LengthUnit.CODE_POINTS,
            typing_interval=TYPING_SECONDS,
            idempotency=Idempotency.RECONCILE,
            max_file_bytes=MAX_FILE_BYTES,
            max_buttons=api.MAX_BUTTONS,
            edit_interval=options.edit_interval,
        )
        token = instance.secret(BOT_TOKEN)
        self._options = options
        self._app_token = instance.secret(APP_TOKEN)
        self._web = make_client(token, options.base_url)
        self._catch_up = SlackCatchUp(context, SlackHistory(self._web, options), options)
        self._media = MediaDownloads("Slack", options, HOSTS, bearer=token)
        self._rate = SendRateLimiter(lambda _: options.pace_seconds)
        self._missing = ""
        self._shows_typing = self._reacts = True

    async def _receive(self) -> None:
        bot = await self.repeat_until_success(self._identify_bot)
        inbound = SlackInbound(self._web, self, self._context, bot, self._catch_up)
        inbound.channels = frozenset(self._options.channels)
        await run_until_one_fails(self._receive_events(inbound), self._catch_up.read_on_request(inbound))

    async def send(self, message: OutgoingMessage) -> Receipt:
        await self._rate.wait_for_channel(message.address.channel)
        with self.end_on_refusal():
            return await (api.upload_file if message.filename else api.post_message)(self._web, message)

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Find a sent message by its key; raises ``AmbiguousSend`` while Slack cannot answer."""
        try:
            return await api.find_sent_message(self._web, message)
        except SendFailure as failure:
            if isinstance(failure, PermanentSend) and failure.code == NO_THREAD:
                return None
            raise search_failure(failure) from None

    async def edit(self, message: OutgoingMessage) -> None:
        with self.end_on_refusal():
            await api.edit_message(self._web, message)

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Add the configured reaction to a message; a slash command or button press gets no reaction."""
        emoji = self._options.ack_reaction.strip(":")
        if not emoji or not self._reacts or not TS.fullmatch(message_id):
            return
        call = self._web.reactions_add(channel=address.channel, timestamp=message_id, name=emoji)
        try:
            await call_slack(call, optional=True)
        except PermanentSend as refused:
            if refused.code == MISSING_SCOPE:
                self._reacts = False
                log.warning("slack.cannot_react", account=self.account, reason=str(refused))
            elif refused.code != "already_reacted":
                raise

    async def typing(self, address: Address) -> None:
        """Show for two minutes in a thread that an answer is being written; elsewhere Slack has no typing indicator."""
        if not address.thread or not self._shows_typing:
            return
        channel, thread = address.channel, address.thread
        try:
            await call_slack(
                self._web.assistant_threads_setStatus(channel_id=channel, thread_ts=thread, status="is typing…")
            )
        except SendFailure as failure:
            self._shows_typing = not (isinstance(failure, PermanentSend) and failure.scope is FailureScope.ACCOUNT)
            raise NotDispatched(str(failure)) from None

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        self._media.check_size(attachment.size)
        try:
            file = (await call_slack(self._web.files_info(file=attachment.id))).get("file") or {}
        except SendFailure as failure:
            raise fetch_failure(failure) from None
        self._media.check_size(int(file.get("size") or 0))
        url = str(file.get("url_private_download") or file.get("url_private") or "")
        if urlsplit(url).scheme != "https" and (urlsplit(url).hostname or "") not in self._media.own_hosts:
            raise PermanentFetch("the file's address does not begin with https://")
        head = await self._media.download_file(url, folder / "file")
        if head.content_type.startswith(HTML) and not str(file.get("mimetype") or "").startswith(HTML):
            raise PermanentFetch("Slack requires a login for the file: does the app have the scope files:read?")
        return folder / "file"

    async def _receive_events(self, inbound: SlackInbound) -> None:
        if self._endpoint is None:
            await SlackSocket(
                self._web, self._app_token, self, inbound.accept_delivery, self._on_hello
            ).receive_until_cancelled()
            return
        self._endpoint.take = inbound.accept_delivery
        self._catch_up.request_history_read()
        await self.report_running(f"Events API, /platforms/slack/{self.account}/events{self._missing}")
        await asyncio.Event().wait()

    async def _on_hello(self) -> None:
        """Catch up after each new connection, which Slack begins with a hello: earlier events may be lost."""
        self._catch_up.request_history_read()
        await self.report_running(f"Socket Mode{self._missing}")

    async def _identify_bot(self) -> SlackBot:
        """Return the bot of the token; raises ``AccountRefused`` when the bot may not post."""
        with slack_errors(token=BOT_TOKEN):
            answer = await self._web.auth_test()
        header = {name.lower(): value for name, value in answer.headers.items()}.get("x-oauth-scopes", "")
        granted = {scope.strip() for scope in header.split(",") if scope.strip()}  # The set is empty without a header.
        if granted and WRITE not in granted:
            raise AccountRefused(f"the {BOT_TOKEN} lacks the scope {WRITE}: add it and install the app again")
        if not answer.get("bot_id"):
            raise AccountRefused(f"the {BOT_TOKEN} belongs to a user: copy the token that begins with xoxb-")
        expected = (*RECOMMENDED_SCOPES, REACT) if self._options.ack_reaction else RECOMMENDED_SCOPES
        missing = [scope for scope in expected if granted and scope not in granted]
        self._missing = f"; the app lacks the scopes {', '.join(missing)}" if missing else ""
        team, user, bot, name = (str(answer[field]) for field in ("team_id", "user_id", "bot_id", "user"))
        return SlackBot(self.account, team, user, bot, name, every_line=not self._options.require_mention)
