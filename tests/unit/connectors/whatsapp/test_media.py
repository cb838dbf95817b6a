"""Files of messages: a fresh link each time, the token to Meta's own host only, proven by their checksum."""

import asyncio
from pathlib import Path

import pytest

from connectors.failures import FetchFailure, PermanentFetch, RetryableFetch
from maestro.domain.messages import Attachment
from tests.support.raw_server import RawServer, answer_of, redirect_to
from tests.support.whatsapp_number import ADA, WhatsAppNumber, whatsapp_and_number
from tests.support.whatsapp_server import ACCESS_TOKEN, Fault

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100


async def refused(number: WhatsAppNumber, media_id: str, folder: Path, size: int = 0) -> FetchFailure:
    """Return why a file is not fetched."""
    with pytest.raises(FetchFailure) as failure:
        await number.connector.fetch(Attachment(id=media_id, size=size), folder)
    return failure.value


async def test_a_file_is_asked_for_anew_and_fetched_with_the_token(tmp_path: Path) -> None:
    async with whatsapp_and_number() as number:
        media_id = number.whatsapp.file(PNG, "image/png")
        number.whatsapp.show(ADA, "image", media_id, caption="look")
        (message,) = await number.heard(1)
        (attachment,) = message.attachments
        assert (attachment.id, attachment.content_type, message.content) == (media_id, "image/png", "look")
        assert (number.whatsapp.downloads, number.whatsapp.called("lookup")) == ([], [])
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir()
            assert (await number.connector.fetch(attachment, tmp_path / folder)).read_bytes() == PNG
        assert number.whatsapp.downloads == [(f"/files/{media_id}", f"Bearer {ACCESS_TOKEN}")] * 2
        assert len(number.whatsapp.called("lookup")) == 2


async def test_200_mb_are_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    async with whatsapp_and_number(start=False) as number:
        media_id = number.whatsapp.file(b"", "video/mp4", size=200 * 1024**2)
        assert "209,715,200 bytes" in str(await refused(number, media_id, tmp_path))
        assert number.whatsapp.downloads == []


async def test_a_file_that_is_larger_than_it_says_is_refused(tmp_path: Path) -> None:
    async with whatsapp_and_number(start=False, max_media_bytes=1024) as number:
        media_id = number.whatsapp.file(b"x" * 5000, "text/plain", size=10)
        assert "larger than 1,024 bytes" in str(await refused(number, media_id, tmp_path))


async def test_a_file_that_is_another_one_is_not_kept(tmp_path: Path) -> None:
    async with whatsapp_and_number(start=False) as number:
        media_id = number.whatsapp.file(PNG, "image/png", sha256="0" * 64)
        failure = await refused(number, media_id, tmp_path)
        assert (type(failure), "checksum" in str(failure)) == (PermanentFetch, True)
        assert len(number.whatsapp.called("lookup")) == len(number.whatsapp.downloads) == 2


async def test_a_file_that_came_broken_is_fetched_once_more(tmp_path: Path) -> None:
    async with RawServer.running() as server, whatsapp_and_number(start=False) as number:
        media_id = number.whatsapp.file(PNG, "image/png", url=f"http://127.0.0.1:{server.port}/x")

        async def mended(writer: asyncio.StreamWriter) -> None:
            writer.write(answer_of(PNG if len(server.asked) > 1 else PNG[:-1]))

        server.answers["/x"] = mended
        path = await number.connector.fetch(Attachment(id=media_id), tmp_path)
        assert (path.read_bytes(), len(server.asked)) == (PNG, 2)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "https://10.0.0.1/x",
        "https://localhost/x",
        "https://[::1]/x",
        "https://2130706433/x",
        "https://evil.example/x",
        "https://user@lookaside.fbsbx.com/x",
        "http://lookaside.fbsbx.com/x",
        "https://lookaside.fbsbx.com:8443/x",
        "https://lookaside.fbsbx.com.evil.example/x",
        "file:///etc/passwd",
        "",
    ],
)
async def test_only_metas_host_is_asked(tmp_path: Path, url: str) -> None:
    async with whatsapp_and_number(start=False, media_hosts=()) as number:
        media_id = number.whatsapp.file(PNG, "image/png")
        number.whatsapp.business.files[media_id].url = url
        assert isinstance(await refused(number, media_id, tmp_path), PermanentFetch)


async def test_a_redirect_to_another_host_is_refused_and_shows_no_token(tmp_path: Path) -> None:
    async with RawServer.running() as elsewhere, whatsapp_and_number(start=False) as number:
        elsewhere.answers["/in"] = redirect_to(f"http://localhost:{elsewhere.port}/out")
        elsewhere.answers["/out"] = answer_of(PNG)
        media_id = number.whatsapp.file(PNG, "image/png", url=f"http://127.0.0.1:{elsewhere.port}/in")
        assert "localhost is not one of the hosts" in str(await refused(number, media_id, tmp_path))
        assert elsewhere.requested("/out") == []


@pytest.mark.parametrize("media_id", ["../1234567890/messages", "a/b", "", "a?b", ".."])
async def test_an_id_that_is_none_leads_nowhere(tmp_path: Path, media_id: str) -> None:
    async with whatsapp_and_number(start=False) as number:
        assert isinstance(await refused(number, media_id, tmp_path), PermanentFetch)
        assert number.whatsapp.calls == []


async def test_what_may_be_there_later_is_told_from_what_is_gone(tmp_path: Path) -> None:
    async with whatsapp_and_number(start=False) as number:
        media_id = number.whatsapp.file(PNG, "image/png")
        number.whatsapp.fail("lookup", Fault.broken(), Fault.limited(3), Fault.refused(100, subcode=33))
        assert isinstance(await refused(number, media_id, tmp_path), RetryableFetch)
        limited = await refused(number, media_id, tmp_path)
        assert limited.retry_after is not None
        assert limited.retry_after.total_seconds() == 3
        assert isinstance(await refused(number, media_id, tmp_path), PermanentFetch)
        assert isinstance(await refused(number, "0", tmp_path), PermanentFetch)


@pytest.mark.parametrize(
    ("status", "failure"), [("503 Sorry", RetryableFetch), ("429 Slow", RetryableFetch), ("404 Gone", PermanentFetch)]
)
async def test_what_the_file_server_says_is_believed(tmp_path: Path, status: str, failure: type[FetchFailure]) -> None:
    async with RawServer.running() as server, whatsapp_and_number(start=False) as number:
        server.answers["/x"] = answer_of(b"no", status=status)
        media_id = number.whatsapp.file(PNG, "image/png", url=f"http://127.0.0.1:{server.port}/x")
        assert isinstance(await refused(number, media_id, tmp_path), failure)
