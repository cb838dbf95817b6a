"""Tests of downloads of received files from the account's homeserver."""

import asyncio
from pathlib import Path

import pytest
from conftest import Account
from matrix_homeserver import NAME, Fault, Homeserver

from connectors.base import FetchesMedia, PermanentFetch, RetryableFetch
from maestro.domain.messages import Attachment

PNG = b"\x89PNG\r\n\x1a\n and pixels"


async def test_a_file_is_fetched_with_the_token(server: Homeserver, account: Account, tmp_path: Path) -> None:
    server.files["cat"] = (PNG, "image/png")
    room = await server.room()
    await account.start()
    info = {"mimetype": "image/png", "size": len(PNG)}
    await server.say(room, "look", msgtype="m.image", filename="cat.png", url=f"mxc://{NAME}/cat", info=info)
    await server.say(room, "dog.png", msgtype="m.image", url="mxc://elsewhere.net:8448/dog")
    look, dog = await account.heard(2)
    assert (look.content, dog.content) == ("look", "")
    [picture] = look.attachments
    assert (picture.filename, picture.content_type, picture.size) == ("cat.png", "image/png", len(PNG))
    assert isinstance(account.connector, FetchesMedia)
    path = await account.connector.fetch(picture, tmp_path)
    assert await asyncio.to_thread(path.read_bytes) == PNG
    assert server.requests[-1][1] == f"/_matrix/client/v1/media/download/{NAME}/cat"


@pytest.mark.parametrize(
    "attachment",
    [
        Attachment(id="https://example.org/cat.png"),
        Attachment(id="mxc://example.org/../../v3/sync"),
        Attachment(id="mxc://example.org/cat", size=2_000_000),
        Attachment(id="mxc://example.org/large"),
    ],
)
async def test_what_is_no_file_for_us_is_not_fetched(
    server: Homeserver, account: Account, tmp_path: Path, attachment: Attachment
) -> None:
    server.files |= {"cat": (PNG, "image/png"), "large": (b"x" * 2_000_000, "image/png")}
    await account.start(max_media_bytes=1_000_000)
    with pytest.raises(PermanentFetch):
        await account.connector.fetch(attachment, tmp_path)


@pytest.mark.parametrize(("status", "failure"), [(404, PermanentFetch), (429, RetryableFetch), (502, RetryableFetch)])
async def test_a_fetch_that_fails_says_whether_to_try_again(
    server: Homeserver, account: Account, tmp_path: Path, status: int, failure: type[Exception]
) -> None:
    await account.start()
    server.faults["download"].append(Fault(status))
    with pytest.raises(failure):
        await account.connector.fetch(Attachment(id="mxc://example.org/cat"), tmp_path)
