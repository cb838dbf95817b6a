"""A backup takes the place of the store: clients hear everything new, and no answer is sent twice where it shows."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.chaos.conftest import ANN, HELPER
from tests.support.chatting import Person, person
from tests.support.evidence import Evidence
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running
from tests.support.slack_server import APP_TOKEN, BOT_TOKEN, SlackServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-restore")]


LONG = 25.0
"""Seconds of a model call that no process outlives here."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(
    slack: SlackServer, llm: LLMServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Maestro]:
    """It talks on the web, where nothing shows what was sent, and on Slack, where it shows."""
    account = {"botToken": BOT_TOKEN, "appToken": APP_TOKEN, "baseUrl": slack.api_url}
    options = {"enabled": True, "paceSeconds": 0, "historySeconds": 0, **account}
    async with running(
        tmp_path_factory.mktemp("maestro"), llm, agents=[HELPER], connectors={"slack": options}
    ) as started:
        await slack.connected()
        yield started


async def restore(maestro: Maestro, archive: Path, *options: str) -> None:
    """Kill it, restore a backup in its place, and start it again."""
    await maestro.kill()
    assert await maestro.command("restore", "--replace", *options, archive) == 0
    await maestro.start()


async def test_web_clients_that_stayed_hear_every_new_answer_after_a_restore_and_fsck_is_clean(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, tmp_path: Path
) -> None:
    llm.script(reply="{last}")
    archive = tmp_path / "copy.tar.gz"
    async with person(maestro.web_port, "restored") as somebody:
        await somebody.say("before please, @helper", "before.")
        await somebody.answered("before.")
        await evidence.ended("before.")
        assert await maestro.command("backup", "--with-keys", archive) == 0
        for number in range(5):
            await somebody.say(f"lost-{number} please, @helper", f"lost-{number}.")
        await somebody.answered(*(f"lost-{number}." for number in range(5)))
        seen = {frame["id"] for frame in somebody.replies}
        await restore(maestro, archive)
        assert evidence.jobs("lost-4.") == []
        await somebody.say("after please, @helper", "after.")
        await somebody.say("again please, @helper", "again.")
        await somebody.answered("after.", "again.")
        ids = [frame["id"] for frame in somebody.replies]
    assert somebody.connections == 2
    assert len(ids) == len(set(ids)) == 8
    assert min(ids[6:]) > max(seen)
    assert max(ids) < 2**53  # what JavaScript counts exactly
    await evidence.ended("after.", "again.")
    assert await maestro.command("fsck") == 0


async def test_an_answer_that_was_posted_after_the_backup_is_found_and_not_posted_again(
    maestro: Maestro, evidence: Evidence, slack: SlackServer, llm: LLMServer, tmp_path: Path
) -> None:
    llm.script(reply="said once", pause=1)
    archive = tmp_path / "copy.tar.gz"
    said = await slack.say("CONCE", ANN, "@helper please")
    await until(lambda: bool(llm.matching("please")), what="a request to the model")
    assert await maestro.command("backup", "--with-keys", archive) == 0
    llm.go_on()
    [post] = await slack.posts("CONCE")
    await restore(maestro, archive)
    [job] = await answered(evidence, said)
    assert slack.posted("CONCE") == [post]
    [chunk] = evidence.deliveries(job)
    assert (chunk["state"], chunk["platform_message_id"]) == ("sent", post["ts"])
    assert await maestro.command("fsck") == 0


async def test_a_web_client_hears_the_answer_of_a_job_that_was_open_at_the_backup(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, tmp_path: Path
) -> None:
    """The store does not know that the client heard it before: a lost answer would be worse than a second one."""
    async with person(maestro.web_port, "open") as somebody:
        archive = await back_up_unanswered(maestro, llm, somebody, "open please, @helper", tmp_path)
        await somebody.answered("open.")
        await restore(maestro, archive)
        await somebody.until(lambda: len(somebody.replies_to("open.")) == 2)
        [job] = await evidence.ended("open.")
        first, second = (frame["id"] for frame in somebody.replies_to("open."))
    assert (job["status"], job["run"]) == ("completed", 2)
    assert job["backed_up_at"]
    assert first < second
    assert await maestro.command("fsck") == 0


async def test_open_jobs_are_held_for_an_operator_who_wants_no_second_answer(
    maestro: Maestro, evidence: Evidence, llm: LLMServer, tmp_path: Path
) -> None:
    async with person(maestro.web_port, "held") as somebody:
        archive = await back_up_unanswered(maestro, llm, somebody, "held please, @helper", tmp_path)
        await somebody.answered("held.")
        await restore(maestro, archive, "--hold-open-jobs")
        [job] = evidence.jobs("held.")
        assert (job["status"], job["error"]) == ("failed", "RestoredOpen")
        await somebody.say("next please, @helper", "next.")
        await somebody.answered("next.")
        assert len(somebody.replies_to("held.")) == 1
        await evidence.ended("next.")
    assert await maestro.command("fsck") == 0


async def test_a_restore_is_refused_while_maestro_runs(
    maestro: Maestro, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "copy.tar.gz"
    assert await maestro.command("backup", "--without-keys", archive) == 0
    assert await maestro.command("restore", "--replace", archive) == 1
    assert "is in use by process" in capfd.readouterr().err


async def back_up_unanswered(maestro: Maestro, llm: LLMServer, somebody: Person, said: str, folder: Path) -> Path:
    """Have somebody say something, and make a backup of a dead Maestro that has it and has not answered."""
    llm.script(reply="{last}")
    llm.script(said, delay=LONG, times=1)
    await somebody.say(said, f"{said.split()[0]}.")
    await until(lambda: bool(llm.matching(said)), what="a request to the model")
    await maestro.kill()
    archive = folder / "copy.tar.gz"
    assert await maestro.command("backup", "--with-keys", archive) == 0
    await maestro.start()
    return archive


async def answered(evidence: Evidence, ts: str) -> list[str]:
    """Return the jobs of a message once all of them are completed."""
    sql = "SELECT queue.id, status FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE message_id = ?"
    await until(lambda: bool(rows := evidence.rows(sql, ts)) and all(row["status"] == "completed" for row in rows))
    return [row["id"] for row in evidence.rows(sql, ts)]
