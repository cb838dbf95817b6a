"""A connection to Discord's gateway; each event waits in its channel's queue until earlier missed messages are read."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import discord
import structlog
from discord import app_commands
from discord.gateway import DiscordWebSocket
from discord.http import Route
from yarl import URL

from connectors.account import AccountConnector, MessageIntake
from connectors.base import ConnectorContext
from connectors.discord import receive
from connectors.discord.catch_up import ChannelQueues, DiscordCatchUp, DiscordCursors, list_channels, retry_until_done
from connectors.discord.errors import TROUBLE
from connectors.discord.platform import DiscordOptions
from connectors.discord.receive import (
    COMMAND_FULL,
    COMMAND_UNANSWERED,
    UNANSWERED_SECONDS,
    CommandReplies,
    DiscordBot,
    DiscordChannel,
    edited_message,
    incoming_message,
    interaction_message,
    register_commands,
)
from maestro.domain.errors import MaestroError
from maestro.domain.messages import ControlWord, IncomingMessage

BASE, GATEWAY = Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY
VERSION = "/api/v10"

# The library would warn that voice support is not installed, which Maestro never uses.
discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False

LONGEST_WAIT = 60.0
"""The longest wait in seconds for a rate limit; a send that would wait longer fails and frees its lane (queue)."""
GUILDS_SECONDS = 1.0
"""Seconds after the announcement of the last server until the connection counts as ready."""
IDENTIFY_SECONDS = 5.0
"""Seconds between two logins of a bot, as Discord requires."""
CANCELLED_SECONDS = 1.0
"""Seconds that the library may take to end after a cancellation."""
GRACE_SECONDS = 5.0
"""Seconds until a lost connection is reported to operators: Discord asks bots to reconnect every few hours."""

log = structlog.get_logger(__name__)


def set_endpoints(options: DiscordOptions) -> None:
    """Set the library's server addresses to the configured ones, else Discord's; add the API's path to a bare host."""
    base = options.base_url.rstrip("/")
    bare = base and not URL(base).path.strip("/")
    Route.BASE = (f"{base}{VERSION}" if bare else base) or BASE
    DiscordWebSocket.DEFAULT_GATEWAY = URL(options.gateway_url) if options.gateway_url else GATEWAY


class DiscordSession(discord.Client):
    """A Discord client that stores the events it receives; ``replies`` are the replies to its slash commands."""

    def __init__(self, connector: AccountConnector, options: DiscordOptions, context: ConnectorContext) -> None:
        intents = discord.Intents.none()
        intents.guilds = intents.guild_messages = intents.dm_messages = True
        intents.message_content = options.message_content
        super().__init__(
            intents=intents,
            allowed_mentions=discord.AllowedMentions.none(),
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            max_ratelimit_timeout=LONGEST_WAIT,
            guild_ready_timeout=GUILDS_SECONDS,
        )
        self.replies = CommandReplies()
        self._connector = connector
        self._options = options
        self._context = context
        self._intake = MessageIntake(context)
        self._cursors = DiscordCursors(context)
        self._gaps = DiscordCatchUp(self, options, context, self._cursors, self._accept_message)
        self._queues = ChannelQueues(self._gaps.read_channel)
        self._resumed = asyncio.Event()
        self._unanswered: set[asyncio.Task[None]] = set()
        self._tree = app_commands.CommandTree[discord.Client](self)
        self._tree.error(log_command_failure)

    async def run_until_closed(self, token: str) -> None:
        """Log in and receive until the connection ends; raises the error that ended it."""
        writing = asyncio.create_task(self._cursors.write_periodically())
        try:
            async with self:
                await self.login(token)
                if self._options.base_url and not self._options.gateway_url:
                    _, address, _ = await self.http.get_bot_gateway()
                    DiscordWebSocket.DEFAULT_GATEWAY = URL(address)
                await self._receive()
        finally:
            writing.cancel()
            for task in self._unanswered:
                task.cancel()
            await self._queues.close_queues()
            await self._cursors.write_cursors()

    async def _receive(self) -> None:
        """Receive until the gateway closes; the connector replaces a session that cannot be resumed.

        The library may miss a cancellation that arrives while it connects, so the client is then closed after a second.
        """
        receiving = asyncio.create_task(self.connect(reconnect=False))
        try:
            await asyncio.wait({receiving})
        finally:
            receiving.cancel()
            await asyncio.wait({receiving}, timeout=CANCELLED_SECONDS)
            await self.close()
            await asyncio.gather(receiving, return_exceptions=True)
        receiving.result()

    async def setup_hook(self) -> None:
        """Register the slash commands."""
        if self._options.slash_commands:
            await register_commands(self._tree, self._accept_command)

    def dispatch(self, event: str, /, *args: object, **named: object) -> None:
        """Dispatch an event to its handler; drop the event after the close, because the library's loop is gone then."""
        if not self.is_closed():
            super().dispatch(event, *args, **named)

    async def before_identify_hook(self, _shard_id: int | None, *, initial: bool = False) -> None:
        """Wait before every login of a session except the first."""
        if not initial:
            await asyncio.sleep(IDENTIFY_SECONDS)

    async def on_connect(self) -> None:
        """Begin a session: in every channel, messages from before the session may be missing."""
        self._queues.begin_session()
        self._resumed.set()

    async def on_guild_available(self, guild: discord.Guild) -> None:
        """Start to read the missed messages of a server's channels."""
        for channel, newest in list_channels(guild):
            if self._is_enabled(channel):
                self._queues.catch_up(channel, newest)

    on_guild_join = on_guild_available

    async def on_ready(self) -> None:
        """Read missed direct messages, which no event announces, and report that the bot runs."""
        await retry_until_done(self._read_direct_channels)
        await self._report_running()

    async def on_resumed(self) -> None:
        """Report that the bot runs again; Discord sends the missed events of a resumed session itself."""
        self._resumed.set()
        await self._report_running()

    async def on_disconnect(self) -> None:
        """Report a lost connection to operators, unless the connection returns within the grace period."""
        self._resumed.clear()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await self._resumed.wait()
        except TimeoutError:
            if not self.is_closed():
                await self._connector.report_broken("the connection to Discord is lost; Maestro reconnects")

    async def on_error(self, event_method: str, /, *_: object, **__: object) -> None:
        """Log only the class of an error; the library's own log line would quote messages of users."""
        log_failure(event_method, sys.exception())

    async def on_message(self, message: discord.Message) -> None:
        """Queue a message before anything is awaited: handlers run in event order only until their first await."""
        self._enqueue_message(message, self._accept_message)

    async def on_raw_message_edit(self, event: discord.RawMessageUpdateEvent) -> None:
        """Queue an edit behind the events that already wait in the channel, such as the edited message."""
        self._enqueue_message(event.message, self._accept_edit)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        """Accept the press of a button; the command tree handles commands."""
        if interaction.type is discord.InteractionType.component and interaction.channel is not None:
            channel = event_channel(interaction.channel, interaction.guild_id)
            await receive.accept_press(interaction, channel, self._connector.account, self._context)

    def _enqueue_message(
        self, message: discord.Message, accept: Callable[[discord.Message, DiscordChannel], Awaitable[None]]
    ) -> None:
        channel = event_channel(message.channel)
        if self._is_enabled(channel):
            self._queues.put_event(channel, partial(accept, message, channel))

    async def _accept_message(self, message: discord.Message, channel: DiscordChannel) -> None:
        """Store a message, then move the cursor; the first message of a new channel begins the cursor."""
        if await self._cursors.read_cursor(channel) is None:
            await self._cursors.set_first_cursor(channel, message.id - 1)
        await self._accept_incoming(incoming_message(message, channel, self._bot_identity))
        self._cursors.advance_cursor(channel, message.id)

    async def _accept_edit(self, message: discord.Message, channel: DiscordChannel) -> None:
        await self._accept_incoming(edited_message(message, channel, self._bot_identity))

    async def _accept_incoming(self, message: IncomingMessage | None) -> None:
        if message is not None:
            await self._intake.accept(message)

    async def _read_direct_channels(self) -> None:
        """Start to read direct messages; the store lists the channels, because Discord announces none to bots."""
        for channel in await self._context.known_channels():
            if channel.direct:
                self._queues.catch_up(DiscordChannel(int(channel.channel)))

    async def _accept_command(self, interaction: discord.Interaction, word: ControlWord) -> None:
        """Acknowledge a slash command within three seconds, as Discord requires, then store the command."""
        self.replies.expect_reply(interaction)
        try:
            await interaction.response.defer(ephemeral=True, thinking=True)
        except (*TROUBLE, LookupError, TypeError) as error:  # The last two mean an unreadable answer of Discord.
            # The command is obeyed even without Discord's acknowledgement; the reply is then sent as an ordinary
            # message.
            log.warning("discord.command_not_acknowledged", error=type(error).__name__)
        channel = event_channel(interaction.channel, interaction.guild_id) if interaction.channel else None
        if channel is None or not self._is_enabled(channel):
            self._expire_reply(interaction, COMMAND_UNANSWERED)
            return
        try:
            await self._context.accept(interaction_message(interaction, word, channel, self._connector.account))
            self._expire_reply(interaction, COMMAND_UNANSWERED, UNANSWERED_SECONDS)
        except MaestroError as error:
            log.warning("discord.command_not_taken", error=type(error).__name__)
            self._expire_reply(interaction, COMMAND_FULL)

    def _expire_reply(self, interaction: discord.Interaction, text: str, after: float = 0.0) -> None:
        task = asyncio.create_task(self.replies.end_waiting(interaction, text, after))
        self._unanswered.add(task)
        task.add_done_callback(self._unanswered.discard)

    def _is_enabled(self, channel: DiscordChannel) -> bool:
        chosen = self._options.channels
        return channel.is_direct or not chosen or channel.address_channel in chosen or str(channel.id) in chosen

    @property
    def _bot_identity(self) -> DiscordBot:
        number = self.user.id if self.user is not None else 0
        return DiscordBot(self._connector.account, number, every_line=not self._options.require_mention)

    async def _report_running(self) -> None:
        if self.is_closed():  # Reading the channels may have taken until after the end of the session.
            return
        name, servers = self.user.name if self.user else "", len(self.guilds)
        detail = f"as {name} on {servers} {'server' if servers == 1 else 'servers'}"
        await self._connector.report_running(detail)


def log_failure(event: str, error: BaseException | None) -> None:
    """Log the failure of an event's handler."""
    log.error("discord.event_failed", happened=event, error=type(error).__name__, exc_info=error)


async def log_command_failure(_: discord.Interaction, error: app_commands.AppCommandError) -> None:
    log_failure("command", error.__cause__ or error)


def event_channel(channel: object, guild: int | None = None) -> DiscordChannel:
    """Return the channel of an event; a channel of a type unknown to the library counts as no thread."""
    if isinstance(channel, discord.Thread):
        return DiscordChannel(channel.id, channel.parent_id, channel.guild.id)
    if isinstance(channel, discord.abc.GuildChannel):
        return DiscordChannel(channel.id, guild=channel.guild.id)
    assert isinstance(channel, discord.abc.Snowflake)
    return DiscordChannel(channel.id, guild=getattr(channel, "guild_id", None) or guild)
