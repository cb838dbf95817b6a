"""Where groups go on that became larger ones, under a new id; asked for once, then remembered."""

from connectors.base import ConnectorContext


def is_group(channel: str) -> bool:
    """Tell whether a chat is no person's: groups and channels have negative ids."""
    return channel.startswith("-")


class Moves:
    """Knows the id of each group now."""

    def __init__(self, context: ConnectorContext) -> None:
        self._context = context
        self._now: dict[str, str] = {}

    async def now(self, channel: str) -> str:
        """Return under which id a chat goes on; a person never moves."""
        if not is_group(channel):
            return channel
        if channel not in self._now:
            self._now[channel] = await self._context.moved_to(channel)
        return self._now[channel]

    async def moved(self, channel: str, to: str) -> None:
        """Keep that a group goes on elsewhere."""
        await self._context.moved(channel, to)
        self._now = {known: to if now == channel else now for known, now in self._now.items()} | {channel: to}
