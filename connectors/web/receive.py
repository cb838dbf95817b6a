"""The way in: from what a client said to a committed message."""

from collections.abc import Callable
from datetime import datetime

from ulid import ULID

from connectors.base import ConnectorContext, Role
from connectors.web.config import PLATFORM
from connectors.web.errors import ChannelTaken, ShuttingDown
from connectors.web.frames import Said
from connectors.web.identity import Guest
from maestro.domain.messages import Accepted, Address, IncomingMessage

STOP = "/stop"


class Reception:
    """Takes messages for people who were let in; shared by sockets and HTTP."""

    def __init__(self, context: ConnectorContext, clock: Callable[[], datetime]) -> None:
        self._context = context
        self._clock = clock
        self._open = True
        self._unwritten: dict[str, str] = {}
        """New channels nobody has written in, and who opened them: only a message makes one worth a row."""

    def close(self) -> None:
        """Take no further message; what was acknowledged stays."""
        self._open = False

    async def open_channel(self, guest: Guest, channel: str) -> Address:
        """Return the place where this person talks, a new one if ``channel`` is empty; raises ``ChannelTaken``."""
        address = Address(platform=PLATFORM, channel=channel or f"web-{ULID()}")
        if not guest.may_open(address.channel):
            raise ChannelTaken("This channel is for the dashboard only.")
        if channel:
            await self._own(guest, address)
        else:
            self._unwritten[address.channel] = guest.identity.user_id
        return address

    def leave(self, address: Address) -> None:
        """Forget a new channel in which nothing was said."""
        self._unwritten.pop(address.channel, None)

    async def take(self, guest: Guest, address: Address, said: Said) -> Accepted:
        """Commit a message; raises what ``ConnectorContext.accept`` raises, and ``ShuttingDown`` during a drain."""
        if not self._open:
            raise ShuttingDown
        user = guest.identity
        files = await self._context.uploads(user.user_id, said.attachments) if said.attachments else ()
        if address.channel in self._unwritten:
            await self._own(guest, address)
        message = IncomingMessage(
            # The user is part of the id: two users may choose the same clientId.
            id=f"{user.user_id}:{said.client_id or ULID()}",
            address=address,
            user_id=user.user_id,
            user_name=user.user_name,
            content=said.content,
            sent_at=self._clock(),
            attachments=files,
            is_direct=True,
            is_owner=user.role is Role.OWNER,
            from_bot=guest.bot,
        )
        return await self._context.accept(message)

    async def stop(self, guest: Guest, address: Address) -> Accepted:
        """Ask the running job of this channel to stop (docs/decisions.md: control words)."""
        return await self.take(guest, address, Said(client_id="", content=STOP))

    async def _own(self, guest: Guest, address: Address) -> None:
        """Let the channel be this person's for good; raises ``ChannelTaken``."""
        user = guest.identity.user_id
        opener = self._unwritten.get(address.channel, user)
        if opener != user or not await self._context.open_channel(address, user):
            raise ChannelTaken("The channel belongs to somebody else.")
        self.leave(address)
