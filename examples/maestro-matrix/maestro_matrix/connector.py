"""The Matrix connector of one account on one homeserver."""

import contextlib
from datetime import timedelta
from pathlib import Path

from pydantic import SecretStr

from connectors.base import Capabilities, Connector, ConnectorContext, ConnectorState, Idempotency, LengthUnit
from connectors.failures import AccountRefused, NotDispatched
from connectors.options import Instance
from maestro.domain.errors import ConfigurationError
from maestro.domain.messages import Address, Attachment, OutgoingMessage, Receipt
from maestro_matrix import send
from maestro_matrix.errors import MatrixTrouble
from maestro_matrix.homeserver import Homeserver
from maestro_matrix.inbound import Inbound
from maestro_matrix.media import Media
from maestro_matrix.platform import ACCESS_TOKEN, NAME, MatrixOptions
from maestro_matrix.receive import MatrixBot, is_direct
from maestro_matrix.rooms import Rooms
from maestro_matrix.sync import Sync, pauses, wait

MAX_LENGTH = 4_000
"""The most code points of a message: an event of at most 64 KiB contains them twice, as text and as HTML."""
REMEMBERED = timedelta(minutes=30)
"""The time for which every homeserver remembers a transaction id; the specification names no time."""
MAX_FILE_BYTES = 50 * 1024**2
"""The largest file in bytes that homeservers accept by default."""
TYPING_SECONDS = 20.0
SHOWN_SECONDS = 30.0


def connect(instance: Instance, context: ConnectorContext) -> Connector:
    """Create the connector of an account; raises ``ConfigurationError`` for the options of another platform."""
    options = instance.options
    if not isinstance(options, MatrixOptions):
        raise ConfigurationError(f"{NAME}/{instance.account}: these are no options of Matrix")
    return MatrixConnector(instance, context, options)


class MatrixConnector:
    """The connector of one Matrix account, which receives by long polls and needs no public address."""

    platform = NAME

    def __init__(self, instance: Instance, context: ConnectorContext, options: MatrixOptions) -> None:
        self.account, self.token_digest = instance.account, instance.token_digest
        self.capabilities = Capabilities(
            max_length=MAX_LENGTH,
            unit=LengthUnit.CODE_POINTS,
            typing_interval=TYPING_SECONDS,
            idempotency=Idempotency.NATIVE,
            native_window=REMEMBERED,
            max_file_bytes=MAX_FILE_BYTES,
            edit_interval=options.streaming_seconds if options.streaming else 0,
        )
        token = instance.secret(ACCESS_TOKEN)
        self._context, self._options = context, options
        self._server = Homeserver(options.base_url, token)
        self._rooms = Rooms(self._server)
        self._media = Media(SecretStr(token), options)
        self._bot: MatrixBot | None = None
        self._typing: set[str] = set()

    async def run(self) -> None:
        """Receive messages until cancelled; raises ``AccountRefused`` when the homeserver refuses the account."""
        inbound = Inbound(self._server, self._context, self._rooms, self._options)
        try:
            await self._context.report(ConnectorState.STARTING)
            bot = await self._identify_bot()
            await Sync(self._server, self._context, inbound, self._rooms, self._options).run(bot)
        except AccountRefused as refused:
            await self._context.report(ConnectorState.FAILED, str(refused))
            raise
        finally:
            await self._server.close()

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Send a chunk or a file once; raises a ``SendFailure``."""
        receipt = await send.post(self._server, message, quote=await self._quotes(message))
        await self._end_typing(message.address.channel)
        return receipt

    async def edit(self, message: OutgoingMessage) -> None:
        """Replace the text of a sent message; raises a ``SendFailure``."""
        await send.edit(self._server, message)
        await self._end_typing(message.address.channel)

    async def find(self, message: OutgoingMessage) -> Receipt | None:
        """Find a sent message by its key; raises a ``SendFailure`` while the homeserver cannot answer."""
        if self._bot is None:
            raise NotDispatched("the homeserver has not confirmed the account yet")
        return await send.find(self._server, self._bot.user_id, message)

    async def acknowledge(self, address: Address, message_id: str) -> None:
        """Add the configured reaction, if any, to a message."""
        if self._options.ack_reaction:
            await send.react(self._server, address, message_id, self._options.ack_reaction)

    async def typing(self, address: Address) -> None:
        """Show the typing indicator."""
        if self._bot is None:
            return
        try:
            await self._server.typing(address.channel, SHOWN_SECONDS)
        except MatrixTrouble as trouble:
            raise NotDispatched(str(trouble)) from None
        self._typing.add(address.channel)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file by its ``mxc://`` address; raises a ``FetchFailure``."""
        return await self._media.fetch(attachment, folder)

    async def _identify_bot(self) -> MatrixBot:
        """Ask the homeserver for the id of the account, and repeat until it answers."""
        for pause in pauses():
            try:
                user_id = await self._server.whoami()
            except MatrixTrouble as trouble:
                await wait(self._context, trouble, pause)
            else:
                self._bot = MatrixBot(self.account, user_id, every_line=not self._options.require_mention)
                return self._bot
        raise AssertionError("the pauses never end")

    async def _quotes(self, message: OutgoingMessage) -> bool:
        """Tell whether an answer quotes the user's message; true if the members of the room cannot be read."""
        if not message.reply_to or self._options.quote_replies != "groups":
            return self._options.quote_replies == "always"
        try:
            return not is_direct(await self._rooms.members(message.address.channel))
        except MatrixTrouble:
            return True

    async def _end_typing(self, room: str) -> None:
        if room in self._typing:
            self._typing.discard(room)
            with contextlib.suppress(MatrixTrouble):  # the indicator ends by itself
                await self._server.typing(room, 0)
