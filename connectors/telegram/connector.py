"""The Telegram connector: one bot that polls for updates or receives them by webhook."""

from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from starlette.routing import BaseRoute
from telegram import ReactionTypeEmoji
from telegram.constants import ChatAction

from connectors.backoff import SendRateLimiter
from connectors.base import Capabilities, Connector, ConnectorContext, ConnectorState, Idempotency, LengthUnit
from connectors.capabilities import Markup, OnAmbiguous, PlatformTransport
from connectors.failures import (
    AccountRefused,
    FailureScope,
    FetchFailure,
    PermanentFetch,
    PermanentSend,
    RetryableFetch,
)
from connectors.platforms import Instance
from connectors.telegram import send
from connectors.telegram.api import (
    NO_REACTION,
    TelegramClient,
    TelegramMoved,
    TelegramRefused,
    TelegramTrouble,
    before_sending,
    fetch_failure,
    send_failure,
    telegram_errors,
)
from connectors.telegram.config import PLATFORM, TOKEN, WEBHOOK_SECRET, TelegramOptions, is_token
from connectors.telegram.inbound import GroupMigrations, TelegramInbound, is_group
from connectors.telegram.persistence import retry_until_done
from connectors.telegram.receive import TelegramBot
from connectors.telegram.render import render
from connectors.telegram.updates import TelegramEndpoint, TelegramPolling, WebhookSubscription
from maestro.domain.errors import ConfigurationError
from maestro.domain.messages import PAIR, Address, Attachment, ControlWord, OutgoingMessage, Receipt
from maestro.fetch import FetchAccess, FetchFailed, FetchLimits, FetchRefused, download

HOSTS = frozenset({"api.telegram.org"})
HTTPS = frozenset({443})
SECONDS = 120.0
MOST_BYTES = 20 * 1000**2
"""Telegram gives bots no larger files; a server of one's own does."""

NO_TOKEN = "token is none of Telegram's, which are a number, a colon and letters; copy it anew from @BotFather"  # noqa: S105
TYPING_SECONDS = 4.0
"""Telegram shows it for five seconds, or until a message comes."""
MAX_BUTTONS = 100
COMMANDS = {
    ControlWord.STOP: "Stop what is being answered here",
    ControlWord.STATUS: "Tell what is being worked on here",
    ControlWord.NEW: "Begin a new conversation with the next message",
    PAIR: "Send the code of an invitation",
}

log = structlog.get_logger(__name__)


async def fetch_file(line: TelegramClient, options: TelegramOptions, attachment: Attachment, folder: Path) -> Path:
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


async def _link(line: TelegramClient, attachment: Attachment) -> str:
    """Ask where the file is; such a link is good for an hour."""
    try:
        with telegram_errors():
            found = await line.get_file(attachment.id)
    except TelegramTrouble as trouble:
        raise fetch_failure(trouble) from None
    link = found.file_path or ""
    if urlsplit(link).scheme not in ("http", "https"):
        raise PermanentFetch("Telegram does not say where the file is; a server run with --local keeps it to itself")
    return link


async def _download(url: str, path: Path, options: TelegramOptions) -> int:
    own = frozenset(host.lower() for host in options.media_hosts)
    access = FetchAccess(hosts=HOSTS | own, private_hosts=own, ports=frozenset() if own else HTTPS)
    try:
        return (await download(url, path, FetchLimits(options.max_media_bytes, SECONDS), access)).status
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


def connect(instance: Instance, context: ConnectorContext) -> Connector:
    """Make the connector of a bot, by the way its messages arrive."""
    options = instance.options
    if not isinstance(options, TelegramOptions):
        raise ConfigurationError(f"telegram/{instance.account}: these are no options of Telegram")
    make = TelegramWebhookConnector if options.mode == "webhook" else TelegramConnector
    return make(instance, context, options)


class TelegramConnector:
    """A bot that asks for its messages; it needs no address that others can reach."""

    platform = PLATFORM
    transport = PlatformTransport.POLLING

    def __init__(self, instance: Instance, context: ConnectorContext, options: TelegramOptions) -> None:
        self.account = instance.account
        self.token_digest = instance.token_digest
        self.capabilities = _capabilities(self.transport, options)
        self._context = context
        self._options = options
        self._has_token = is_token(instance.secret(TOKEN))
        self._line = TelegramClient(instance.secret(TOKEN), options.base_url)
        self._moves = GroupMigrations(context)
        self._pace = SendRateLimiter(
            lambda chat: options.group_pace_seconds if is_group(chat) else options.pace_seconds
        )
        self._no_reaction: set[str] = set()
        self._doing = ""
        self._state = ConnectorState.STOPPED

    async def run(self) -> None:
        """Listen until cancelled; raises ``AccountRefused`` when Telegram does not let us, now or later."""
        try:
            self._state = ConnectorState.STARTING
            await self._context.report(self._state)
            self._require_token()
            await self._line.pick_up()
            inbound = TelegramInbound(self._context, await retry_until_done(self._introduced, self), self._moves, self)
            await inbound.listen_to(self._options.channels)
            await self._tell_commands()
            await self._listen(inbound)
        except AccountRefused as refused:
            await self._context.report(ConnectorState.FAILED, str(refused))
            raise
        finally:
            await self._line.hang_up()

    def _require_token(self) -> None:
        if not self._has_token:
            raise AccountRefused(NO_TOKEN)

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Post a chunk, or a file, once; raises a ``SendFailure``."""
        with before_sending():
            chat = await self._moves.now(message.address.channel)
        await self._pace.wait(chat)
        try:
            try:
                return await self._sent(message, chat)
            except TelegramMoved as moved:  # then it surely was not sent
                with before_sending():
                    await self._moves.moved(chat, moved.to)
                return await self._sent(message, moved.to)
        except TelegramTrouble as trouble:
            raise send_failure(trouble) from None

    async def edit(self, message: OutgoingMessage) -> None:
        """Let a message of ours say this; raises a ``SendFailure``."""
        chat = await self._moves.now(message.address.channel)
        try:
            await send.edit(self._line, message, send.place(message, chat, quoting=False))
        except TelegramMoved as moved:
            await self._moves.moved(chat, moved.to)
            raise PermanentSend("the group went on elsewhere, without its messages", FailureScope.MESSAGE) from None
        except TelegramTrouble as trouble:
            raise send_failure(trouble) from None

    async def typing(self, address: Address) -> None:
        """Show that an answer is being written, for five seconds or until the next message."""
        chat = await self._moves.now(address.channel)
        try:
            with telegram_errors():
                await self._line.send_chat_action(
                    chat, ChatAction.TYPING, message_thread_id=send.number_of(address.thread)
                )
        except TelegramTrouble as trouble:
            raise send_failure(trouble) from None

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Put the reaction of the settings to a message; where Telegram does not let us, it is tried no more."""
        number, reaction = send.number_of(message_id), self._options.ack_reaction
        if not reaction or number is None or address.channel in self._no_reaction:
            return
        try:
            chat = await self._moves.now(address.channel)
            with telegram_errors():
                await self._line.set_message_reaction(chat, number, [ReactionTypeEmoji(reaction)])
        except TelegramTrouble as trouble:
            if not (isinstance(trouble, TelegramRefused) and trouble.says(NO_REACTION)):
                raise send_failure(trouble) from None
            # A group's admins choose which there are, so another chat may take it.
            log.warning("telegram.no_such_reaction", account=self.account, chat=chat, reaction=reaction)
            self._no_reaction.add(address.channel)

    def render(self, text: str) -> str:
        """Return Markdown as the HTML that Telegram knows."""
        return render(text)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Put a file of a message into the folder; raises a ``FetchFailure``."""
        return await fetch_file(self._line, self._options, attachment, folder)

    async def taken(self, query_id: str, text: str = "") -> None:
        """Tell Telegram that a button was pressed; that it takes no more answers to it costs nothing."""
        try:
            with telegram_errors():
                await self._line.answer_callback_query(query_id, text=text or None)
        except TelegramTrouble as trouble:
            log.info("telegram.press_not_confirmed", account=self.account, reason=str(trouble))

    async def well(self) -> None:
        """Tell operators once that messages come in."""
        if self._state is not ConnectorState.RUNNING:
            self._state = ConnectorState.RUNNING
            await self._context.report(self._state, self._doing)

    async def broken(self, why: str) -> None:
        """Tell operators that none do."""
        self._state = ConnectorState.DEGRADED
        log.warning("telegram.not_listening", account=self.account, reason=why)
        await self._context.report(self._state, why)

    async def _listen(self, inbound: TelegramInbound) -> None:
        await TelegramPolling(self._line, inbound, self).run()

    async def _sent(self, message: OutgoingMessage, chat: str) -> Receipt:
        where = send.place(message, chat, quoting=self._quotes(chat))
        return await (send.upload if message.filename else send.post)(self._line, message, where)

    def _quotes(self, chat: str) -> bool:
        wish = self._options.quote_replies
        return wish == "always" or (wish == "groups" and is_group(chat))

    async def _introduced(self) -> TelegramBot:
        """Ask Telegram who we are."""
        with telegram_errors():
            me = await self._line.get_me()
        every_line = not self._options.require_mention
        deaf = every_line and not me.can_read_all_group_messages
        hint = (
            "; @BotFather's privacy mode (/setprivacy) keeps all but mentions, replies and commands in groups from it"
        )
        self._doing = f"@{me.username}, {self.transport}{hint if deaf else ''}"
        return TelegramBot(self.account, me.id, me.username or "", every_line)

    async def _tell_commands(self) -> None:
        """Let Telegram offer the control words; without that they are still understood."""
        try:
            with telegram_errors():
                await self._line.set_my_commands([(word[1:], what) for word, what in COMMANDS.items()])
        except TelegramTrouble as trouble:
            log.warning("telegram.commands_not_registered", account=self.account, reason=str(trouble))


class TelegramWebhookConnector(TelegramConnector):
    """A bot whose messages Telegram posts to the web connector's port."""

    transport = PlatformTransport.WEBHOOK

    def __init__(self, instance: Instance, context: ConnectorContext, options: TelegramOptions) -> None:
        super().__init__(instance, context, options)
        self._secret = instance.secret(WEBHOOK_SECRET)
        self._webhook = TelegramEndpoint(self._secret)

    def routes(self) -> Sequence[BaseRoute]:
        """Return where Telegram posts: ``/platforms/telegram/<account>`` itself."""
        return self._webhook.routes()

    async def _listen(self, inbound: TelegramInbound) -> None:
        self._webhook.open(inbound)
        await WebhookSubscription(self._line, self._options.webhook_url, self._secret, self).run()


def _capabilities(transport: PlatformTransport, options: TelegramOptions) -> Capabilities:
    return Capabilities(
        max_length=send.MAX_LENGTH,
        unit=LengthUnit.UTF16,
        typing_interval=TYPING_SECONDS,
        idempotency=Idempotency.NONE,
        markup=Markup.OWN,
        transport=transport,
        max_file_bytes=send.MAX_FILE_BYTES,
        on_ambiguous=OnAmbiguous(options.on_ambiguous),
        max_buttons=MAX_BUTTONS,
        edit_interval=options.streaming_seconds if options.streaming else 0,
    )
