"""Files of messages: from Slack's own hosts, with the token shown to nobody else, and within a size."""

from pathlib import Path

import pytest

from connectors.failures import FetchFailure, PermanentFetch, RetryableFetch
from maestro.domain.messages import Attachment
from tests.support.raw_server import RawServer, answer_of, redirect_to
from tests.support.slack_app import SlackApp, slack_and_app
from tests.support.slack_server import BOT_TOKEN, Fault

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100


async def refused(app: SlackApp, file_id: str, folder: Path, size: int = 0) -> FetchFailure:
    """Return why a file is not fetched."""
    with pytest.raises(FetchFailure) as failure:
        await app.connector.fetch(Attachment(id=file_id, size=size), folder)
    return failure.value


async def test_a_file_is_asked_for_anew_and_fetched_with_the_token(tmp_path: Path) -> None:
    async with slack_and_app() as app:
        file_id = app.slack.file("cat.png", PNG, "image/png")
        await app.slack.say("D1", "U1", "look", files=[file_id])
        (message,) = await app.heard(1)
        (attachment,) = message.attachments
        assert (attachment.id, attachment.filename, attachment.content_type) == (file_id, "cat.png", "image/png")
        assert app.slack.downloads == []
        assert (await app.connector.fetch(attachment, tmp_path)).read_bytes() == PNG
        assert app.slack.downloads == [(f"/files-pri/{file_id}", f"Bearer {BOT_TOKEN}")]


async def test_200_mb_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    async with slack_and_app(start=False) as app:
        file_id = app.slack.file("film.mp4", b"", "video/mp4", size=200 * 1024**2)
        assert "maxMediaBytes" in str(await refused(app, file_id, tmp_path, size=200 * 1024**2))
        assert app.slack.called("files.info") == []
        assert "209,715,200 bytes" in str(await refused(app, file_id, tmp_path))
        assert app.slack.downloads == []


async def test_a_file_that_is_larger_than_it_says_is_refused(tmp_path: Path) -> None:
    async with slack_and_app(start=False, max_media_bytes=1024) as app:
        file_id = app.slack.file("liar.bin", b"x" * 5000, "application/octet-stream", size=10)
        assert "larger than 1,024 bytes" in str(await refused(app, file_id, tmp_path))


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "https://10.0.0.1/x",
        "https://localhost/x",
        "https://[::1]/x",
        "https://2130706433/x",
        "https://evil.example/x",
        "https://user@files.slack.com/x",
        "http://files.slack.com/x",
        "file:///etc/passwd",
        "",
    ],
)
async def test_only_slacks_hosts_are_asked(tmp_path: Path, url: str) -> None:
    async with slack_and_app(start=False, media_hosts=()) as app:
        file_id = app.slack.file("x.png", PNG, "image/png", url=url)
        app.slack.workspace.files[file_id].url = url
        assert isinstance(await refused(app, file_id, tmp_path), PermanentFetch)


async def test_a_redirect_to_another_host_is_refused_and_shows_no_token(tmp_path: Path) -> None:
    async with RawServer.running() as elsewhere, slack_and_app(start=False) as app:
        elsewhere.answers["/in"] = redirect_to(f"http://localhost:{elsewhere.port}/out")
        elsewhere.answers["/out"] = answer_of(PNG)
        file_id = app.slack.file("x.png", PNG, "image/png", url=f"http://127.0.0.1:{elsewhere.port}/in")
        assert "localhost is not one of the hosts" in str(await refused(app, file_id, tmp_path))
        assert elsewhere.requested("/out") == []


async def test_what_may_be_there_later_is_told_from_what_is_gone(tmp_path: Path) -> None:
    async with slack_and_app(start=False) as app:
        file_id = app.slack.file("x.png", PNG, "image/png")
        app.slack.fail("files.info", Fault.broken(), Fault.limited(3), Fault.refused("file_deleted"))
        assert isinstance(await refused(app, file_id, tmp_path), RetryableFetch)
        limited = await refused(app, file_id, tmp_path)
        assert limited.retry_after is not None
        assert limited.retry_after.total_seconds() == 3
        assert isinstance(await refused(app, file_id, tmp_path), PermanentFetch)
        assert isinstance(await refused(app, "F0", tmp_path), PermanentFetch)


async def test_a_page_to_sign_in_is_no_file(tmp_path: Path) -> None:
    async with RawServer.running() as server, slack_and_app(start=False) as app:
        server.answers["/x"] = answer_of(b"<html>Sign in</html>", "Content-Type: text/html; charset=utf-8")
        file_id = app.slack.file("x.png", PNG, "image/png", url=f"http://127.0.0.1:{server.port}/x")
        assert "files:read" in str(await refused(app, file_id, tmp_path))
