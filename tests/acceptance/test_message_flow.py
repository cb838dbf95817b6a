"""The flow of a message, from a client's socket to the model's and back."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from maestro.domain.jobs.job import FAILURE_NOTICE
from tests.support.instance import FAST_WAIT, Instance, running_instance
from tests.support.llm_server import Failure, Recorded
from tests.support.web_client import WebClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("message-flow")]

LONG = 60.0
"""Seconds that no test waits for: a model that takes so long is stopped."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(tmp_path_factory.mktemp("flow")) as instance:
        yield instance


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """Name a channel after the test, so that tests do not meet."""
    name: str = request.node.name
    return "".join(character if character.isalnum() else "-" for character in name)


def count(maestro: Instance, table: str, where: str, *values: object) -> int:
    """Count rows."""
    return int(maestro.query(f"SELECT count(*) FROM {table} WHERE {where}", *values)[0][0])


def user_rows(maestro: Instance, channel: str) -> int:
    """Count what the conversation of a channel holds of its user."""
    return count(
        maestro,
        "messages JOIN conversations ON conversations.id = conversation_id",
        "channel = ? AND role = 'user'",
        channel,
    )


async def answers(client: WebClient, number: int) -> list[str]:
    """Return the next answers as they come."""
    return [str((await client.wait_for("message", patience=30))["content"]) for _ in range(number)]


async def unanswered(client: WebClient) -> bool:
    """Tell whether no further answer comes for a moment."""
    try:
        await client.wait_for("message", patience=0.3)
    except TimeoutError:
        return True
    return False


# One message


async def test_a_message_is_answered(maestro: Instance, channel: str) -> None:
    async with maestro.client(channel, user_name="Ada") as client:
        assert await client.ask("a simple question") == "answer to: a simple question"
        [request] = maestro.llm.matching("a simple question")
        [job] = await maestro.ended(channel, "completed")
    assert (job["kind"], job["error"], job["reason"], job["run"]) == ("message", "", "", 1)
    assert 'You are talking with a person called "Ada".' in request.texts[0]
    [call] = maestro.query("SELECT * FROM llm_calls WHERE job_id = ?", job["id"])
    assert (call["state"], call["content"], call["attempt"]) == ("answered", "answer to: a simple question", 1)
    roles = maestro.query("SELECT role FROM messages WHERE job_id = ? ORDER BY id", job["id"])
    assert [row["role"] for row in roles] == ["user", "assistant"]
    [sent] = maestro.query("SELECT state, attempts FROM deliveries WHERE job_id = ?", job["id"])
    assert tuple(sent) == ("sent", 1)


async def test_every_step_leaves_a_row(maestro: Instance, channel: str) -> None:
    async with maestro.client(channel) as client:
        await client.ask("which steps are there")
    [job] = await maestro.ended(channel, "completed")
    steps = maestro.query(
        "SELECT step, activity, state, attempt FROM job_steps WHERE job_id = ? ORDER BY id", job["id"]
    )
    assert [tuple(row) for row in steps] == [
        ("route", "choose_agent", "done", 1),
        ("conversation", "record_message", "done", 1),
        ("context", "build_context", "done", 1),
        ("model-1", "call_model", "done", 1),
        ("tags", "record_answer", "done", 1),
        ("deliver", "deliver", "done", 1),
    ]


async def test_typing_shows_before_the_model_is_asked_and_is_refreshed(maestro: Instance, channel: str) -> None:
    maestro.llm.script("a slow thought", delay=0.8)
    async with maestro.client(channel) as client:
        await client.ask("a slow thought")
        answered = time.monotonic()
        await asyncio.sleep(0.3)  # three times the interval, in which nothing happens
    [request] = maestro.llm.matching("a slow thought")
    moments = [moment for where, moment in maestro.taps.typed if where == channel]
    assert moments[0] < request.received
    assert moments[-1] < answered
    assert len([moment for moment in moments if request.in_flight_at(moment)]) >= 3
    kinds = [frame["type"] for frame in client.frames]
    assert kinds.index("typing") < kinds.index("message")
    assert kinds.count("typing") == len(moments)


# The same message again


async def test_the_same_message_three_times_and_after_a_restart_is_answered_once(
    maestro: Instance, channel: str
) -> None:
    async with maestro.client(channel) as one, maestro.client(channel) as two, maestro.client(channel) as three:
        acks = await asyncio.gather(*(client.say("only once", "the-same") for client in (one, two, three)))
        assert sorted(ack["duplicate"] for ack in acks) == [False, True, True]
        assert len({ack["messageId"] for ack in acks}) == 1
        assert await answers(one, 1) == ["answer to: only once"]
    await maestro.ended(channel, "completed")
    await maestro.restart()
    async with maestro.client(channel) as client:
        assert (await client.say("only once", "the-same"))["duplicate"] is True
        assert await unanswered(client)
        assert await client.ask("something else") == "answer to: something else"
    assert len(maestro.llm.matching("only once")) == 1
    assert len(await maestro.ended(channel, "completed", 2)) == len(maestro.jobs(channel))
    assert user_rows(maestro, channel) == 2
    assert [sent.content for sent in maestro.taps.sent if sent.address.channel == channel] == [
        "answer to: only once",
        "answer to: something else",
    ]


async def test_two_messages_with_equal_text_are_two_messages(maestro: Instance, channel: str) -> None:
    async with maestro.client(channel) as client:
        await client.say("equal words", "one")
        await client.say("equal words", "two")
        assert await answers(client, 2) == ["answer to: equal words"] * 2
    assert len(maestro.llm.matching("equal words")) == 2
    assert user_rows(maestro, channel) == 2


# Lanes


def overlapping(requests: Sequence[Recorded]) -> int:
    """Count the neighbours, by arrival, that were in flight together."""
    return sum(one.overlaps(other) for one, other in pairwise(sorted(requests, key=lambda request: request.received)))


async def test_ten_channels_are_answered_side_by_side(maestro: Instance, channel: str) -> None:
    maestro.llm.script("side by side", delay=1.0)

    async def talk(number: int) -> str:
        async with maestro.client(f"{channel}-{number}") as client:
            return await client.ask(f"side by side {number}", patience=30)

    spoken = await asyncio.gather(*(talk(number) for number in range(10)))
    assert spoken == [f"answer to: side by side {number}" for number in range(10)]
    assert maestro.llm.in_flight_peak("side by side") >= 5


async def test_ten_messages_in_one_channel_are_answered_one_after_another(maestro: Instance, channel: str) -> None:
    maestro.llm.script("in a row", delay=0.05)
    async with maestro.client(channel) as client:
        for number in range(10):
            await client.say(f"in a row {number}")
        spoken = await answers(client, 10)
    assert spoken == [f"answer to: in a row {number}" for number in range(10)]
    requests = maestro.llm.matching("in a row")
    assert len(requests) == 10
    assert overlapping(requests) == 0
    for number, request in enumerate(requests):
        talk = [text for earlier in range(number) for text in (f"in a row {earlier}", spoken[earlier])]
        assert request.texts[1:] == [*talk, f"in a row {number}"]


# Control words


@pytest.mark.parametrize("way", ["/stop", "frame"])
async def test_stop_ends_a_running_model_call(maestro: Instance, channel: str, way: str) -> None:
    text = f"think for ever {way}"
    maestro.llm.script(text, delay=LONG, times=1)
    async with maestro.client(channel) as client:
        await client.say(text)
        await client.say("the next one")
        await maestro.asked(text)
        asked = time.monotonic()
        await client.send({"type": "stop"} if way == "frame" else {"type": "message", "content": way})
        assert await answers(client, 2) == ["Stopped.", "answer to: the next one"]
    [request] = maestro.llm.matching(text)
    assert request.outcome == "gone"
    assert request.answered is not None
    assert request.answered - asked < 1.5
    [job] = await maestro.ended(channel, "cancelled")
    calls = maestro.query("SELECT state FROM llm_calls WHERE job_id = ?", job["id"])
    assert [call["state"] for call in calls] == ["interrupted"]


async def test_stop_reaches_a_job_that_waits_for_its_next_attempt(maestro: Instance, channel: str) -> None:
    maestro.llm.script("come back later", failure=Failure.status(503, {"retry-after": "60"}), times=1)
    async with maestro.client(channel) as client:
        await client.say("come back later")
        await maestro.until(
            "SELECT 1 FROM job_steps JOIN queue ON queue.id = job_id WHERE channel = ? AND state = 'failed'", channel
        )
        await client.say("/stop")
        await client.say("without delay")
        assert await answers(client, 2) == ["Stopped.", "answer to: without delay"]
    await maestro.ended(channel, "completed", 2)
    assert maestro.jobs(channel)[0]["status"] == "cancelled"


async def test_a_message_taken_back_at_once_is_not_answered(maestro: Instance, channel: str) -> None:
    maestro.llm.script("never mind this", delay=LONG, times=1)
    async with maestro.client(channel) as client:
        await client.send({"type": "message", "content": "never mind this"})
        await client.send({"type": "stop"})
        await client.send({"type": "message", "content": "but this"})
        # The notice of a stop has no place in the lane, so it may come before or after the next answer.
        assert sorted(await answers(client, 2)) == ["Stopped.", "answer to: but this"]
    await maestro.ended(channel, "cancelled")


async def test_status_and_stop_and_new_never_wait_behind_a_message(maestro: Instance, channel: str) -> None:
    maestro.llm.script("take your time", delay=LONG, times=1)
    async with maestro.client(channel) as client:
        assert await client.ask("/status") == "Nothing is running here."
        assert await client.ask("/stop") == "Nothing is running here."
        await client.say("take your time")
        await client.say("behind it")
        await maestro.asked("take your time")
        assert await client.ask(" /STATUS ") == "I am working on an answer; 1 more waiting."
        assert await client.ask("/new") == "A new conversation begins with your next message."
        assert maestro.llm.matching("take your time")[0].outcome == "in flight"
        await client.say("/stop")
        assert await answers(client, 2) == ["Stopped.", "answer to: behind it"]
    [request] = maestro.llm.matching("behind it")
    assert request.texts[1:] == ["take your time", "behind it"], "it came before the new conversation"


async def test_new_begins_a_new_conversation(maestro: Instance, channel: str) -> None:
    async with maestro.client(channel) as client:
        await client.ask("remember this")
        await client.ask("/new")
        await client.ask("do you remember")
    [request] = maestro.llm.matching("do you remember")
    assert request.texts[1:] == ["do you remember"]
    conversations = maestro.query("SELECT status FROM conversations WHERE channel = ? ORDER BY id", channel)
    assert [row["status"] for row in conversations] == ["closed", "active"]


# Providers that fail


async def test_a_provider_that_fails_twice_is_asked_a_third_time(maestro: Instance, channel: str) -> None:
    maestro.llm.script("third time lucky", failure=Failure.status(500), times=2)
    async with maestro.client(channel) as client:
        assert await client.ask("third time lucky", patience=30) == "answer to: third time lucky"
        assert await unanswered(client)
    [job] = await maestro.ended(channel, "completed")
    requests = maestro.llm.matching("third time lucky")
    waits = [later.received - earlier.received for earlier, later in pairwise(requests)]
    assert len(waits) == 2
    assert waits[0] >= FAST_WAIT
    assert waits[1] >= 2 * FAST_WAIT
    assert job["attempts"] == 2
    calls = maestro.query("SELECT attempt, state, error FROM llm_calls WHERE job_id = ? ORDER BY id", job["id"])
    failed = "ProviderUnavailable"
    assert [tuple(call) for call in calls] == [(1, "failed", failed), (2, "failed", failed), (3, "answered", "")]
    steps = maestro.query("SELECT state FROM job_steps WHERE job_id = ? AND step = 'model-1' ORDER BY id", job["id"])
    assert [step["state"] for step in steps] == ["failed", "failed", "done"]


@pytest.mark.parametrize(
    ("status", "requests", "error"), [(500, 3, "ProviderUnavailable"), (400, 1, "BadRequest"), (404, 1, "BadRequest")]
)
async def test_a_message_that_cannot_be_answered_fails_with_one_notice(
    maestro: Instance, channel: str, status: int, requests: int, error: str
) -> None:
    text = f"a question met by {status}"
    maestro.llm.script(text, failure=Failure.status(status), times=requests)
    async with maestro.client(channel) as client:
        await client.say(text)
        await client.say("and the lane goes on")
        assert await answers(client, 2) == [FAILURE_NOTICE, "answer to: and the lane goes on"]
        assert await unanswered(client)
    assert len(maestro.llm.matching(text)) == requests
    [job] = await maestro.ended(channel, "failed")
    assert job["error"] == error
    assert "account 'main'" in job["reason"]
    assert text not in job["reason"]


async def test_the_wait_a_provider_asks_for_is_kept(maestro: Instance, channel: str) -> None:
    maestro.llm.script("not so fast", failure=Failure.status(503, {"retry-after": "2"}), times=1)
    async with maestro.client(channel) as client:
        assert await client.ask("not so fast", patience=30) == "answer to: not so fast"
    first, second = maestro.llm.matching("not so fast")
    assert second.received - first.received >= 2


async def test_the_embedded_server_has_the_namespace_that_is_set(tmp_path: Path) -> None:
    async with running_instance(tmp_path, temporal={"namespace": "production"}) as maestro:
        async with maestro.client("elsewhere") as client:
            assert await client.ask("hello") == "answer to: hello"
        [job] = await maestro.ended("elsewhere", "completed")
        description = await (await maestro.temporal()).get_workflow_handle(job["id"]).describe()
    assert description.namespace == "production"
