"""How far channels were taken in, as one connection knows it."""

from connectors.discord.catch_up import DiscordCursors
from connectors.discord.receive import DiscordChannel
from tests.support.memory_context import MemoryContext

CHANNEL, FRESH = DiscordChannel(1, guild=7), DiscordChannel(2, guild=7)


async def test_what_a_connection_began_with_is_known_however_far_it_read_since() -> None:
    """Or a thread that began during an outage would count as old when its channel is read before it."""
    cursors = DiscordCursors(MemoryContext(marks={("1", ""): "10"}))
    assert (await cursors.read_cursor(CHANNEL), await cursors.cursor_at_connect(CHANNEL)) == (10, 10)
    cursors.advance_cursor(CHANNEL, 50)
    assert (await cursors.read_cursor(CHANNEL), await cursors.cursor_at_connect(CHANNEL)) == (50, 10)


async def test_a_channel_that_was_never_seen_before_has_no_beginning() -> None:
    cursors = DiscordCursors(MemoryContext())
    assert await cursors.cursor_at_connect(FRESH) is None
    await cursors.set_first_cursor(FRESH, 20)
    assert (await cursors.read_cursor(FRESH), await cursors.cursor_at_connect(FRESH)) == (20, None)
