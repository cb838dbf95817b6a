"""The Telegram connector of one bot, which polls for updates or receives them by webhook."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from telegram import ReactionTypeEmoji
from telegram.constants import ChatAction

from connectors.account import CONTROL_WORDS, AccountConnector, MediaDownloads, SendRateLimiter
from connectors.base import Capabilities, ConnectorContext, Idempotency, LengthUnit, OnAmbiguous
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
from connectors.telegram import send
from connectors.telegram.api import (
    NO_REACTION,
    TOO_BIG,
    TelegramClient,
    TelegramMoved,
    has_refusal_words,
    telegram_errors,
)
from connectors.telegram.platform import PLATFORM, TOKEN, TOKEN_FORM, WEBHOOK_SECRET, TelegramOptions
from connectors.telegram.receive import TelegramBot
from connectors.telegram.send import render_html
from connectors.telegram.updates import (
    GroupMigrations,
    TelegramEndpoint,
    TelegramInbound,
    TelegramPolling,
    is_group,
    keep_webhook_registered,
)
from maestro.domain.errors import StoreBusy
from maestro.domain.messages import PAIR, Address, Attachment, OutgoingMessage, Receipt

HOSTS = frozenset({"api.telegram.org"})
MAX_DOWNLOAD_BYTES = 20 * 1000**2
"""The largest file that a bot can download from Telegram; a Bot API server of the operator has no limit."""
NO_TOKEN = "token is not a Telegram token, which is a number, a colon and letters; copy the token from @BotFather"  # noqa: S105
PRIVACY_HINT = (
    "; @BotFather's privacy mode (/setprivacy) hides all messages in groups but mentions, replies and commands"
)
TYPING_SECONDS = 4.0
"""Seconds between two typing signals; Telegram shows one for five seconds or until a message arrives."""
MAX_BUTTONS = 100

log = structlog.get_logger(__name__)


class TelegramConnector(AccountConnector):
    """The connector of one Telegram bot, which polls for updates or receives them by webhook."""

    platform = PLATFORM
    render = staticmethod(render_html)

    def __init__(self, instance: Instance, context: ConnectorContext) -> None:
        super().__init__(instance, context)
        options = instance.options
        assert isinstance(options, TelegramOptions)
        self._secret = instance.secret(WEBHOOK_SECRET)
        self._endpoint = TelegramEndpoint(self._secret) if options.mode == "webhook" else None
        self.capabilities = Capabilities(
            max_length=send.MAX_LENGTH,
            unit=LengthUnit.UTF16,
            typing_interval=TYPING_SECONDS,
            idempotency=Idempotency.NONE,
            max_file_bytes=send.MAX_FILE_BYTES,
            on_ambiguous=OnAmbiguous(options.on_ambiguous),
            max_buttons=MAX_BUTTONS,
            edit_interval=options.edit_interval,
        )
        self._options = options
        self._has_token = TOKEN_FORM.fullmatch(instance.secret(TOKEN)) is not None
        self._client = TelegramClient(instance.secret(TOKEN), options.base_url)
        self._migrations = GroupMigrations(context)
        self._media = MediaDownloads("Telegram", options, HOSTS)
        self._rate = SendRateLimiter(
            lambda chat: options.group_pace_seconds if is_group(chat) else options.pace_seconds
        )
        self._no_reaction: set[str] = set()
        self._detail = ""

    async def _receive(self) -> None:
        if not self._has_token:
            raise AccountRefused(NO_TOKEN)
        try:
            await self._client.allow_calls()
            bot = await self.repeat_until_success(self._identify_bot)
            inbound = TelegramInbound(self._context, bot, self._migrations, self._confirm_press)
            await inbound.restrict_to(self._options.channels)
            await self._register_commands()
            await self._receive_updates(inbound)
        finally:
            await self._client.close_when_idle()

    async def send(self, message: OutgoingMessage) -> Receipt:
        with treat_busy_as_unsent():
            chat = await self._migrations.current_id(message.address.channel)
        await self._rate.wait_for_channel(chat)
        try:
            return await self._post_message(message, chat)
        except TelegramMoved as moved:  # Telegram refused the old chat id, so the message was not sent
            with treat_busy_as_unsent():
                await self._migrations.add_migration(chat, moved.to)
            return await self._post_message(message, moved.to)

    async def edit(self, message: OutgoingMessage) -> None:
        chat = await self._migrations.current_id(message.address.channel)
        try:
            await send.edit_message(self._client, message, send.build_destination(message, chat, quoting=False))
        except TelegramMoved as moved:
            await self._migrations.add_migration(chat, moved.to)
            raise PermanentSend("the group has a new id; old messages cannot be edited", FailureScope.MESSAGE) from None

    async def typing(self, address: Address) -> None:
        chat, thread = await self._migrations.current_id(address.channel), send.message_number(address.thread)
        with telegram_errors():
            await self._client.send_chat_action(chat, ChatAction.TYPING, message_thread_id=thread)

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Add the configured reaction to a message; a chat that refuses the reaction is not tried again."""
        number, reaction = send.message_number(message_id), self._options.ack_reaction
        if not reaction or number is None or address.channel in self._no_reaction:
            return
        chat = await self._migrations.current_id(address.channel)
        try:
            with telegram_errors():
                await self._client.set_message_reaction(chat, number, [ReactionTypeEmoji(reaction)])
        except SendFailure as failure:
            if not has_refusal_words(failure, NO_REACTION):
                raise
            # The admins of a group choose the allowed reactions, so the refusal concerns this chat only.
            log.warning("telegram.no_such_reaction", account=self.account, chat=chat, reaction=reaction)
            self._no_reaction.add(address.channel)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file over a link that contains the bot's token, so the link is neither logged nor shown."""
        self._media.check_size(attachment.size)
        if attachment.size > MAX_DOWNLOAD_BYTES and not self._options.base_url:
            size = f"the file has {attachment.size:,} bytes"
            raise PermanentFetch(f"{size}; the limit of Telegram for bots is {MAX_DOWNLOAD_BYTES:,}")
        try:
            with telegram_errors():
                link = (await self._client.get_file(attachment.id)).file_path or ""
        except SendFailure as failure:
            if has_refusal_words(failure, TOO_BIG):
                raise PermanentFetch("the file is larger than 20 MB, the limit of Telegram for bots") from None
            raise fetch_failure(failure) from None
        if urlsplit(link).scheme not in ("http", "https"):
            problem = (
                "Telegram returned no link to the file; a Bot API server with --local cannot be used for downloads"
            )
            raise PermanentFetch(problem)
        await self._media.download_file(link, folder / "file")
        return folder / "file"

    async def _receive_updates(self, inbound: TelegramInbound) -> None:
        if self._endpoint is not None:
            self._endpoint.take = inbound.accept_updates
            await keep_webhook_registered(self, self._client, self._options.webhook_url, self._secret, self._detail)
        polling = TelegramPolling(self._client, inbound, lambda: self.report_running(self._detail))
        while True:
            await self.repeat_until_success(polling.poll_updates)

    async def _confirm_press(self, query_id: str, text: str) -> None:
        """Confirm a button press to Telegram; a failure, for example of a late confirmation, is only logged."""
        try:
            with telegram_errors():
                await self._client.answer_callback_query(query_id, text=text or None)
        except SendFailure as failure:
            log.info("telegram.press_not_confirmed", account=self.account, reason=str(failure))

    async def _post_message(self, message: OutgoingMessage, chat: str) -> Receipt:
        to = send.build_destination(message, chat, quoting=self._options.quotes_message(in_group=is_group(chat)))
        return await (send.upload_file if message.filename else send.post_message)(self._client, message, to)

    async def _identify_bot(self) -> TelegramBot:
        with telegram_errors():
            me = await self._client.get_me()
        every_line = not self._options.require_mention
        hint = PRIVACY_HINT if every_line and not me.can_read_all_group_messages else ""
        self._detail = f"@{me.username}, {self._options.mode}{hint}"
        return TelegramBot(self.account, me.id, me.username or "", every_line)

    async def _register_commands(self) -> None:
        """Register the control words as suggested commands; on failure the control words still work as messages."""
        try:
            with telegram_errors():
                commands = (*CONTROL_WORDS.items(), (PAIR, "Send the code of an invitation"))
                await self._client.set_my_commands([(word[1:], text) for word, text in commands])
        except SendFailure as failure:
            log.warning("telegram.commands_not_registered", account=self.account, reason=str(failure))


@contextmanager
def treat_busy_as_unsent() -> Iterator[None]:
    """Translate a store error before a send into ``NotDispatched``, because nothing was sent."""
    try:
        yield
    except StoreBusy as error:
        raise NotDispatched(str(error)) from None
