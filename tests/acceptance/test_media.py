"""Files that come with a message: fetched once, known by their bytes, shown or named to the model."""

import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from connectors.base import RetryableFetch
from maestro.domain.errors import Forbidden
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.messages import Attachment
from tests.support import uploads
from tests.support.history import history_of
from tests.support.instance import Instance, running_instance
from tests.support.llm_server import Recorded
from tests.support.uploads import tell
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("message-flow")]

PNG = b"\x89PNG\r\n\x1a\n and pixels"
GIF = b"GIF89a and pixels"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(tmp_path_factory.mktemp("media")) as instance:
        yield instance


async def upload(client: WebClient, maestro: Instance, name: str, content: bytes) -> str:
    """Upload a file as the client's user and return its id."""
    assert maestro.taps.connector is not None
    return await uploads.upload(client, maestro.taps.connector.port, name, content)


def pictures(request: Recorded, turn: int = -1) -> list[tuple[str, bytes]]:
    """Return the images of a message of the prompt as the provider got them: type and bytes."""
    content: Any = request.body["messages"][turn]["content"]
    parts = [] if isinstance(content, str) else content
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    found = [url.removeprefix("data:").split(";base64,") for url in urls]
    return [(content_type, base64.b64decode(data)) for content_type, data in found]


async def media_steps(maestro: Instance, channel: str) -> list[tuple[str, str]]:
    """Return state and error of every attempt at the media step of the channel's one job, once it is answered."""
    [job] = await maestro.ended(channel, "completed")
    sql = "SELECT state, error FROM job_steps WHERE job_id = ? AND step = 'media' ORDER BY attempt"
    return [(row["state"], row["error"]) for row in maestro.query(sql, job["id"])]


async def test_a_picture_reaches_the_model_as_image_data(maestro: Instance) -> None:
    async with maestro.client("picture") as client:
        picture = await upload(client, maestro, "cat.bmp", PNG)
        await tell(client, "what is on it", picture)
    [request] = maestro.llm.matching("what is on it")
    assert pictures(request) == [("image/png", PNG)]
    assert request.last_user == "what is on it"
    [job] = await maestro.ended("picture", "completed")
    [row] = maestro.query("SELECT * FROM media WHERE inbox_id = ?", job["inbox_id"])
    assert (row["seq"], row["content_type"], row["filename"], row["size"]) == (0, "image/png", "cat.bmp", len(PNG))
    assert (maestro.data_dir / "media" / row["digest"][:2] / row["digest"]).read_bytes() == PNG
    assert await media_steps(maestro, "picture") == [("done", "")]


async def test_the_next_message_shows_the_picture_again(maestro: Instance) -> None:
    async with maestro.client("again") as client:
        await tell(client, "look at this", await upload(client, maestro, "one.gif", GIF))
        await tell(client, "and now think")
    [request] = maestro.llm.matching("and now think")
    assert pictures(request, -3) == [("image/gif", GIF)]
    assert pictures(request) == []


async def test_a_text_file_is_named_and_the_stored_message_is_what_the_person_wrote(maestro: Instance) -> None:
    async with maestro.client("text-file") as client:
        notes = await upload(client, maestro, "notes.png", b"plain words\n" * 200)
        await tell(client, "read my notes", notes)
    [request] = maestro.llm.matching("read my notes")
    assert request.last_user == "read my notes\n[Attachment: notes.png (text/plain, 2 kB)]"
    assert pictures(request) == []
    [job] = await maestro.ended("text-file", "completed")
    [stored] = maestro.query("SELECT content FROM messages WHERE inbox_id = ?", job["inbox_id"])
    assert stored["content"] == "read my notes"


async def test_a_message_of_nothing_but_a_picture_is_answered(maestro: Instance) -> None:
    async with maestro.client("only-a-picture") as client:
        await tell(client, "", await upload(client, maestro, "only.png", PNG))
    [request] = maestro.llm.matching("only.png")
    assert request.last_user == f"[Attachment: only.png (image/png, {len(PNG)} bytes)]"
    assert pictures(request) == [("image/png", PNG)]


async def test_the_same_file_twice_is_kept_once(maestro: Instance) -> None:
    async with maestro.client("twice") as client:
        ids = [await upload(client, maestro, name, b"GIF89a twice") for name in ("a.gif", "b.gif")]
        await tell(client, "the same twice", *ids)
    [request] = maestro.llm.matching("the same twice")
    assert pictures(request) == [("image/gif", b"GIF89a twice")] * 2
    [job] = await maestro.ended("twice", "completed")
    rows = maestro.query("SELECT digest FROM media WHERE inbox_id = ? ORDER BY seq", job["inbox_id"])
    assert len(rows) == 2
    assert len({row["digest"] for row in rows}) == 1
    assert not list((maestro.data_dir / "media").glob("arriving-*"))


async def test_a_file_that_is_gone_does_not_cost_the_answer(maestro: Instance) -> None:
    async with maestro.client("gone") as client:
        lost = await upload(client, maestro, "lost.png", b"GIF89a lost")
        kept = await upload(client, maestro, "kept.png", PNG)
        [row] = maestro.query("SELECT digest FROM uploads WHERE id = ?", lost)
        (maestro.data_dir / "media" / row["digest"][:2] / row["digest"]).unlink()
        await tell(client, "one of them is gone", lost, kept)
    [request] = maestro.llm.matching("one of them is gone")
    assert request.last_user == "one of them is gone\n[Attachment: lost.png (not available)]"
    assert pictures(request) == [("image/png", PNG)]
    [job] = await maestro.ended("gone", "completed")
    rows = maestro.query("SELECT digest, error FROM media WHERE inbox_id = ? ORDER BY seq", job["inbox_id"])
    assert (rows[0]["digest"], "deleted from" in rows[0]["error"]) == ("", True)
    assert (len(rows[1]["digest"]), rows[1]["error"]) == (64, "")


async def test_a_file_that_cannot_be_had_now_is_fetched_again(
    maestro: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = maestro.taps.connector
    assert connector is not None
    fetch, failures = connector.fetch, [RetryableFetch("busy", timedelta(seconds=0.1))]

    async def at_the_second_attempt(attachment: Attachment, folder: Path) -> Path:
        if failures:
            raise failures.pop()
        return await fetch(attachment, folder)

    async with maestro.client("later") as client:
        picture = await upload(client, maestro, "later.png", PNG)
        monkeypatch.setattr(connector, "fetch", at_the_second_attempt)
        await tell(client, "only at the second attempt", picture)
    [request] = maestro.llm.matching("only at the second attempt")
    assert pictures(request) == [("image/png", PNG)]
    assert await media_steps(maestro, "later") == [("failed", "RetryableFetch"), ("done", "")]


async def test_a_restart_keeps_what_it_has_and_tries_again_for_what_was_gone(maestro: Instance) -> None:
    async with maestro.client("restart") as client:
        lost, kept = [await upload(client, maestro, f"{name}.gif", GIF + name.encode()) for name in ("lost", "kept")]
        [row] = maestro.query("SELECT digest FROM uploads WHERE id = ?", lost)
        path = maestro.data_dir / "media" / row["digest"][:2] / row["digest"]
        path.rename(path.with_suffix(".away"))
        await tell(client, "before and after", lost, kept)
        path.with_suffix(".away").rename(path)
        [job] = await maestro.ended("restart", "completed")
        with maestro.operator() as operator:
            await operator.jobs.replay(job["id"], ReplayMode.RESTART, "a test")
        await client.wait_for("message", patience=30)
    first, second = maestro.llm.matching("before and after")
    assert pictures(first) == [("image/gif", GIF + b"kept")]
    assert pictures(second) == [("image/gif", GIF + b"lost"), ("image/gif", GIF + b"kept")]


async def test_a_step_that_gives_up_does_not_cost_the_answer_either(
    maestro: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise Forbidden("no file today")

    async with maestro.client("fault") as client:
        picture = await upload(client, maestro, "fault.png", PNG)
        monkeypatch.setattr(maestro.taps.connector, "fetch", refuse)
        await tell(client, "a fault in between", picture)
    [request] = maestro.llm.matching("a fault in between")
    assert request.last_user.endswith("[Attachment: fault.png (not available)]")
    assert await media_steps(maestro, "fault") == [("failed", "Forbidden")]


async def test_no_name_and_no_word_travels_through_temporal(maestro: Instance) -> None:
    async with maestro.client("quiet") as client:
        await tell(client, "unspeakable words", await upload(client, maestro, "unspeakable.png", PNG))
    [job] = await maestro.ended("quiet", "completed")
    history = await history_of(maestro, job["id"])
    assert b"fetch_media" in history
    assert b"unspeakable" not in history
    assert base64.b64encode(PNG) not in history


async def test_nothing_is_fetched_or_heard_for_who_may_not_talk(tmp_path: Path) -> None:
    key = "a key that makes its holder a user and not the owner"
    closed = {"platform": "web", "channel": "closed", "agent": "conductor", "permissions": "read_only"}
    async with running_instance(tmp_path, web={"apiKey": key}, channels=[closed]) as maestro:
        async with maestro.client("closed", api_key=key) as client:
            files = [await upload(client, maestro, "a file", content) for content in (PNG, b"OggS OpusHead")]
            assert (await client.say("look and listen", attachments=files))["type"] == "ack"
            [job] = await maestro.ended("closed", "dropped")
        steps = maestro.query("SELECT step FROM job_steps WHERE job_id = ?", job["id"])
        assert [row["step"] for row in steps] == ["route"]
        assert maestro.query("SELECT * FROM media") == []
        assert maestro.llm.requests == []
