"""Maestro is killed while it talks to Slack: nothing is sent twice, and nothing that was said is lost."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.chaos.conftest import ANN
from tests.support.database import stored_text
from tests.support.evidence import Evidence, Row
from tests.support.instance import until
from tests.support.llm_server import LLMServer
from tests.support.running import Maestro, running
from tests.support.slack_server import APP_TOKEN, BOT_TOKEN, Fault, SlackServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("chaos-slack")]

PARAGRAPH = "The quick brown fox jumps over the lazy dog. " * 80
LONG = "\n\n".join(f"{n}: {PARAGRAPH}" for n in range(4))
"""An answer of four chunks, in as many paragraphs."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(
    slack: SlackServer, llm: LLMServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Maestro]:
    """It logs all it can, so that a token in a line shows."""
    account = {"botToken": BOT_TOKEN, "appToken": APP_TOKEN, "baseUrl": slack.api_url}
    async with running(
        tmp_path_factory.mktemp("maestro"),
        llm,
        agents=[{"slug": "helper"}],
        connectors={"slack": {"enabled": True, "paceSeconds": 0, "historySeconds": 0, **account}},
        logs={"level": "debug"},
    ) as started:
        await slack.connected()
        yield started


async def ended(evidence: Evidence, ts: str) -> Row:
    """Return the one job of a message when it is completed."""
    sql = (
        "SELECT queue.* FROM inbox JOIN queue ON queue.id = inbox.job_id WHERE message_id = ? AND status = 'completed'"
    )
    await until(lambda: bool(evidence.rows(sql, ts)))
    [job] = evidence.rows(sql, ts)
    return job


def keys(slack: SlackServer, channel: str) -> list[str]:
    """Return the key of every request to post something in a channel."""
    calls = [call.arguments for call in slack.called("chat.postMessage")]
    return [str(asked["metadata"]["event_payload"]["key"]) for asked in calls if asked["channel"] == channel]


async def test_killed_after_slack_has_it_and_before_we_know(
    maestro: Maestro, evidence: Evidence, slack: SlackServer
) -> None:
    slack.fail("chat.postMessage", Fault.silence(stores=True))
    said = await slack.say("CACCEPTED", ANN, "@helper please")
    [first] = await slack.posts("CACCEPTED")
    await maestro.kill()
    await maestro.start()
    job = await ended(evidence, said)
    posted = slack.posted("CACCEPTED")
    assert len(keys(slack, "CACCEPTED")) == len(posted) == len(set(keys(slack, "CACCEPTED")))
    rows = evidence.deliveries(job["id"])
    assert [(row["state"], row["platform_message_id"]) for row in rows] == [("sent", one["ts"]) for one in posted]
    assert posted[0] == first
    assert evidence.calls(job["id"])["answered"] == 1


async def test_killed_between_the_second_chunk_and_the_third(
    maestro: Maestro, evidence: Evidence, slack: SlackServer, llm: LLMServer
) -> None:
    llm.script(reply=LONG)
    slack.fail("chat.postMessage", Fault.silence(stores=False), skip=2)
    said = await slack.say("CCHUNKS", ANN, "@helper please")
    await until(lambda: len(keys(slack, "CCHUNKS")) == 3)
    await maestro.kill()
    assert len(slack.posted("CCHUNKS")) == 2
    await maestro.start()
    job = await ended(evidence, said)
    one, two, three, *others = keys(slack, "CCHUNKS")
    assert others[0] == three
    assert {one, two}.isdisjoint(others)
    assert " ".join(post["text"] for post in slack.posted("CCHUNKS")).split() == LONG.split()
    assert evidence.calls(job["id"])["answered"] == 1


async def test_killed_before_a_message_is_kept(maestro: Maestro, evidence: Evidence, slack: SlackServer) -> None:
    """Slack tells of it again, for nobody acknowledged it."""
    maestro.arm("before accept")
    said = await slack.say("CUNKEPT", ANN, "@helper are you there")
    await maestro.crash_at("before accept")
    await ended(evidence, said)
    assert {post["thread_ts"] for post in slack.posted("CUNKEPT")} == {said}


async def test_killed_after_a_message_is_kept_and_before_it_is_acknowledged(
    maestro: Maestro, evidence: Evidence, slack: SlackServer
) -> None:
    """It comes twice and is one message."""
    maestro.arm("after accept")
    message = slack.write("CKEPT", ANN, "@helper are you there")
    envelope = await slack.tell("CKEPT", message)
    await maestro.crash_at("after accept")
    await slack.acknowledged(envelope)
    job = await ended(evidence, message["ts"])
    assert len(evidence.deliveries(job["id"])) == len(slack.posted("CKEPT"))
    assert evidence.calls(job["id"])["answered"] == 1


async def test_killed_while_slack_tells_nobody_of_a_message(
    maestro: Maestro, evidence: Evidence, slack: SlackServer
) -> None:
    """The history has it, after a cursor that is older."""
    await ended(evidence, await slack.say("CMISSED", ANN, "@helper hello"))
    await maestro.kill()
    missed = slack.write("CMISSED", ANN, "@helper are you there")["ts"]
    await maestro.start()
    await ended(evidence, missed)
    assert {post["thread_ts"] for post in slack.posted("CMISSED")} >= {missed}


async def test_the_token_is_in_no_line_and_no_row(maestro: Maestro, evidence: Evidence) -> None:
    for text in (maestro.log.read_text(), "\n".join(maestro.said), stored_text(evidence.path)):
        for token in (BOT_TOKEN, APP_TOKEN):
            assert token not in text
        assert "ticket-" not in text
