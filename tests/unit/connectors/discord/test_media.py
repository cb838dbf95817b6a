"""Files: by reference until somebody may have them, then from Discord's own hosts, with a link that is fresh."""

from pathlib import Path

import pytest

from connectors.base import PermanentFetch, RetryableFetch
from maestro.domain.messages import Attachment
from tests.support.discord_bot import connected
from tests.support.discord_server import Channel, DiscordServer, Fault, User
from tests.support.instance import until
from tests.support.memory_context import MemoryContext

PNG = b"\x89PNG\r\n\x1a\n and an image"
OWN = {"media_hosts": ("127.0.0.1",)}


async def said_with(
    context: MemoryContext, discord: DiscordServer, ann: User, square: Channel, **file: object
) -> Attachment:
    """Let somebody send an image and return the reference that was taken in."""
    discord.say(ann, square, "see", attachments=[{**discord.file("a.png", PNG, "image/png"), **file}])
    await until(lambda: len(context.inbox) == 1)
    [attachment] = context.inbox[0].attachments
    return attachment


async def test_a_file_is_fetched_when_it_is_asked_for(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, tmp_path: Path
) -> None:
    async with connected(discord, context, **OWN) as connector:
        attachment = await said_with(context, discord, ann, square)
        assert (attachment.filename, attachment.content_type, attachment.size) == ("a.png", "image/png", len(PNG))
        assert "http" not in attachment.id
        assert discord.downloads == []
        path = await connector.fetch(attachment, tmp_path)
    assert path.read_bytes() == PNG


async def test_a_link_that_has_expired_is_asked_for_again(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, tmp_path: Path
) -> None:
    async with connected(discord, context, **OWN) as connector:
        attachment = await said_with(context, discord, ann, square)
        discord.expire_links()
        assert (await connector.fetch(attachment, tmp_path)).read_bytes() == PNG


async def test_a_link_that_expires_on_the_way_is_asked_for_once_more(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, tmp_path: Path
) -> None:
    async with connected(discord, context, **OWN) as connector:
        attachment = await said_with(context, discord, ann, square)
        discord.expire_links_on_download(1)
        assert (await connector.fetch(attachment, tmp_path)).read_bytes() == PNG
        discord.expire_links_on_download(9)
        another = tmp_path / "another"
        another.mkdir()
        with pytest.raises(PermanentFetch, match="fresh link"):
            await connector.fetch(attachment, another)
    assert len(discord.downloads) == 4


async def test_200_megabytes_are_refused_by_their_size(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, tmp_path: Path
) -> None:
    async with connected(discord, context, **OWN) as connector:
        attachment = await said_with(context, discord, ann, square, size=200 * 1024**2)
        with pytest.raises(PermanentFetch, match="209,715,200 bytes"):
            await connector.fetch(attachment, tmp_path)
    assert (discord.asked("message"), discord.downloads) == ([], [])


async def test_a_file_larger_than_it_said_is_not_read_to_its_end(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, tmp_path: Path
) -> None:
    async with connected(discord, context, **OWN, max_media_bytes=1024) as connector:
        discord.say(ann, square, "see", attachments=[discord.file("a.png", PNG * 100, "image/png", size=10)])
        await until(lambda: len(context.inbox) == 1)
        with pytest.raises(PermanentFetch, match="larger than 1,024 bytes"):
            await connector.fetch(context.inbox[0].attachments[0], tmp_path)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/a", "https://10.0.0.1/a", "https://[::1]/a", "https://cdn.discordapp.com.evil.example/a"],
)
async def test_an_address_that_is_not_discords_is_not_asked(
    discord: DiscordServer, context: MemoryContext, ann: User, square: Channel, tmp_path: Path, url: str
) -> None:
    async with connected(discord, context) as connector:
        attachment = await said_with(context, discord, ann, square, url=url)
        with pytest.raises(PermanentFetch, match="may not be downloaded"):
            await connector.fetch(attachment, tmp_path)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(Fault(404, 10008), PermanentFetch), (Fault(403, 50001), PermanentFetch), (Fault(503), RetryableFetch)],
)
async def test_a_message_that_cannot_be_had(
    discord: DiscordServer,
    context: MemoryContext,
    ann: User,
    square: Channel,
    tmp_path: Path,
    fault: Fault,
    expected: type[Exception],
) -> None:
    async with connected(discord, context, **OWN) as connector:
        attachment = await said_with(context, discord, ann, square)
        discord.fail("GET", "message", fault)
        with pytest.raises(expected):
            await connector.fetch(attachment, tmp_path)
