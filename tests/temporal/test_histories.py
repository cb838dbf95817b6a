"""What Temporal knows of a message: never what anybody said, and enough to follow every step.

See docs/invariants.md: by reference.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError

from connectors.base import FailureScope, NotDispatched, PermanentSend
from maestro.domain.jobs.job import JobRef
from temporal.deployments import build_name
from tests.support.histories import payloads, stories, story
from tests.support.instance import KEY, PATIENCE, Instance, running_instance, until
from tests.support.llm_server import Failure
from tests.support.ports import free_port
from tests.support.web_ui import shown_steps

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("histories")]

SAID, NAME, SYSTEM, ANSWER, BROKEN = "planted-saying", "planted-name", "planted-system", "planted-answer", "planted-row"
HAND, TASK = "planted-by-hand", "planted-task"
PLANTED = (SAID, NAME, SYSTEM, ANSWER, BROKEN, TASK, KEY)

MOST_BYTES = 4096
MOST_EVENTS = 16
"""What a plain message may cost in a cloud that bills by event and action."""


@dataclass
class Told:
    """A Maestro to which everything was told that must not appear in a history."""

    maestro: Instance
    client: Client

    def job(self, channel: str, number: int = 0) -> str:
        """Return the id of a channel's job, the first unless told otherwise."""
        return str(self.maestro.jobs(channel)[number]["id"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Told]:
    agent = {"slug": "conductor", "role": "conductor", "systemPrompt": f"You keep {SYSTEM} to yourself."}
    agents = [agent, {"slug": "bob", "systemPrompt": f"You keep {SYSTEM} too."}]
    webui = {"enabled": True, "port": free_port(), "publicUrl": "https://maestro.example/"}
    async with running_instance(tmp_path_factory.mktemp("told"), agents=agents, webui=webui) as maestro:
        scripts(maestro)
        client = await maestro.temporal()
        await asyncio.gather(
            *(talk(maestro, channel, status) for channel, status in ENDINGS.items()),
            stopped(maestro),
            tasks(maestro),
            broken_row(maestro),
            malformed(client),
        )
        yield Told(maestro, client)


ENDINGS = {
    "plain": "completed",
    "400": "failed",
    "404": "failed",
    "500": "failed",
    "twice": "completed",
    "refused": "failed",
    "away": "completed",
    "fault": "failed",
}
"""What becomes of a message in each channel."""


def scripts(maestro: Instance) -> None:
    """Have the model echo prompts and keys, and the platform quote messages."""
    maestro.llm.script(reply=f"{ANSWER} to {{last}}")
    for status in (400, 404, 500):
        maestro.llm.script(f"in {status}", failure=Failure.status(status))
    maestro.llm.script("in twice", failure=Failure.status(503), times=2)
    maestro.llm.script("in stopped", delay=60)
    maestro.llm.script("in broken", delay=1, times=1)
    failures = maestro.taps.failures
    failures["refused"].append(PermanentSend(f"cannot post '{ANSWER}' with {KEY}", FailureScope.MESSAGE))
    failures["away"].append(NotDispatched(f"cannot reach {SAID}"))
    failures["fault"].extend(ValueError(f"a fault over {SAID} and {ANSWER}") for _ in range(5))


async def talk(maestro: Instance, channel: str, status: str) -> None:
    """Say something in a channel and wait for its end."""
    async with maestro.client(channel, user_name=NAME) as client:
        await client.say(f"{SAID} in {channel}")
        await maestro.ended(channel, status)


async def stopped(maestro: Instance) -> None:
    """Stop a running call."""
    async with maestro.client("stopped", user_name=NAME) as client:
        await client.say(f"{SAID} in stopped")
        await maestro.asked(f"{SAID} in stopped")
        await client.say("/stop")
        await maestro.ended("stopped", "cancelled")


async def tasks(maestro: Instance) -> None:
    """Have an agent ask another one and go on with the result."""
    maestro.llm.script("in tasks", reply=f"{ANSWER} [DELEGATE:bob wait]{TASK}[/DELEGATE]")
    async with maestro.client("tasks", user_name=NAME) as client:
        await client.say(f"{SAID} in tasks")
        await maestro.ended("tasks", "completed", 3)


async def broken_row(maestro: Instance) -> None:
    """Spoil the row of a waiting message, so that its first step meets what it cannot read and says so."""
    async with maestro.client("broken", user_name=NAME) as client:
        await client.say(f"{SAID} in broken")
        await client.say("the second")
        attachments = json.dumps([{"id": BROKEN, "size": BROKEN}])
        maestro.change("UPDATE inbox SET attachments = ? WHERE content = 'the second'", attachments)
        await maestro.ended("broken", "failed")


async def malformed(client: Client) -> None:
    """Start a workflow whose input is none, and one for a job that does not exist."""
    nobody = JobRef(
        job_id="message-nobody", run=1, heartbeat_seconds=3, model_seconds=10, tool_seconds=10, tool_rounds=5
    )
    for workflow_id, given in (("by-hand", {"job_id": {"text": HAND}, "said": HAND}), ("nobody", nobody)):
        with pytest.raises(WorkflowFailureError):
            await client.execute_workflow("MessageWorkflow", given, id=workflow_id, task_queue="maestro")


# Nothing of what was said


async def test_no_history_holds_what_was_said(told: Told) -> None:
    found = await stories(told.client)
    assert len(found) >= len(ENDINGS) + 9
    texts = {one.workflow_id: one.text() for one in found}
    leaks = [(workflow_id, word) for workflow_id, text in texts.items() for word in PLANTED if word in text]
    assert leaks == []


async def test_a_malformed_start_is_not_quoted_in_its_failure(told: Told) -> None:
    by_hand = await story(told.client, "by-hand")
    assert HAND in by_hand.text()
    assert HAND not in by_hand.text(first=2)


async def test_the_search_finds_what_is_there(told: Told) -> None:
    """Guard the test itself: words that must be in the histories are found, those in payloads included."""
    plain = await story(told.client, told.job("plain"))
    for word in (plain.workflow_id, "conductor", "gpt-4o-mini", "Ask the model"):
        assert word in plain.text()


async def test_the_store_does_hold_it(told: Told) -> None:
    details = told.maestro.query("SELECT detail FROM job_steps WHERE state = 'failed'")
    assert any(SAID in row["detail"] for row in details), "operators may read why a step failed"


async def test_payloads_are_references_of_a_few_hundred_bytes(told: Told) -> None:
    found = await stories(told.client)
    assert max(one.largest_payload() for one in found) <= MOST_BYTES


async def test_a_plain_message_takes_few_events(told: Told) -> None:
    assert len((await story(told.client, told.job("plain"))).events) <= MOST_EVENTS


# What people see in the Temporal Web UI


async def page(told: Told, path: str, **query: str) -> Any:
    """Read what the Temporal Web UI itself reads."""
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{told.maestro.ui_url}/api/v1/namespaces/default{path}", params=query)
    answer.raise_for_status()
    return answer.json()


async def found_by(told: Told, query: str) -> set[str]:
    """Return the ids of the workflows a person would find."""
    listed = await page(told, "/workflows", query=query)
    return {execution["execution"]["workflowId"] for execution in listed["executions"]}


def steps_of(history: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return each event that is a step, as its activity and its summary."""
    steps = []
    for event in history["history"]["events"]:
        scheduled = event.get("activityTaskScheduledEventAttributes")
        marker = event.get("markerRecordedEventAttributes")
        if scheduled or marker:
            name = scheduled["activityType"]["name"] if scheduled else local_activity(marker)
            steps.append((name, json.loads(decoded(event["userMetadata"]["summary"]))))
    return steps


def local_activity(marker: Mapping[str, Any]) -> str:
    """Return the activity behind a marker."""
    return str(json.loads(decoded(marker["details"]["data"]["payloads"][0]))["activity_type"])


def decoded(payload: Mapping[str, str]) -> str:
    """Return the text of a payload."""
    return base64.b64decode(payload["data"]).decode()


@pytest.mark.parametrize("attribute", ["Agent", "Conversation", "Outcome", "Platform", "Kind", "Channel"])
async def test_a_message_is_found_by_what_it_was_about(told: Told, attribute: str) -> None:
    job = told.maestro.jobs("plain")[0]
    values = {
        "Agent": "conductor",
        "Conversation": str(job["conversation_id"]),
        "Outcome": "completed",
        "Platform": "web",
        "Kind": "message",
        "Channel": "plain",
    }
    query = f'{attribute}="{values[attribute]}" AND Channel="plain"'
    found: set[str] = set()
    for _ in range(100):
        if found := await found_by(told, query):
            break
        await asyncio.sleep(0.1)
    assert found == {job["id"]}


@pytest.mark.parametrize(
    ("channel", "outcome"), [("400", "failed"), ("stopped", "cancelled"), ("refused", "failed"), ("twice", "completed")]
)
async def test_every_ending_is_found_by_its_outcome(told: Told, channel: str, outcome: str) -> None:
    query = f'Outcome="{outcome}" AND Channel="{channel}" AND Agent="conductor"'
    assert await found_by(told, query) == {told.job(channel)}


async def test_the_release_that_worked_is_named(told: Told) -> None:
    """One name, whatever else the process has imported: the SDK's own is made of all modules, and takes a second."""
    events = (await story(told.client, told.job("plain"))).events
    done = [event for event in events if event.HasField("workflow_task_completed_event_attributes")]
    builds = {event.workflow_task_completed_event_attributes.worker_version.build_id for event in done}
    assert builds == {build_name()}


async def test_every_activity_is_there_with_a_summary(told: Told) -> None:
    steps = steps_of(await page(told, f"/workflows/{told.job('plain')}/history"))
    assert [name for name, _ in steps] == ["prepare", "answer"]
    assert all(summary for _, summary in steps)


async def test_the_web_ui_tells_how_each_step_ended_and_what_it_took(told: Told) -> None:
    steps = await shown_steps(told.maestro.ui_url, told.job("plain"))
    assert set(steps) >= {"route", "conversation", "context", "model", "tags", "deliver"}
    assert all(step.outcome for step in steps.values())
    assert 0 < sum(step.milliseconds for step in steps.values()) < PATIENCE * 1000


async def test_the_web_ui_tells_what_was_done_before_a_send_that_failed(told: Told) -> None:
    details = str(await told.client.get_workflow_handle(told.job("refused")).query("__temporal_workflow_metadata"))
    assert "model-1: done" in details
    assert "tags: done" in details


async def test_the_failure_path_is_there_too(told: Told) -> None:
    steps = steps_of(await page(told, f"/workflows/{told.job('400')}/history"))
    assert [name for name, _ in steps] == ["prepare", "answer", "deliver", "close_job"]
    described = await told.client.get_workflow_handle(told.job("400")).describe()
    assert described.status is WorkflowExecutionStatus.FAILED


async def test_failed_attempts_of_local_steps_are_markers(told: Told) -> None:
    one = await story(told.client, told.job("broken", 1))
    failures = [
        event.marker_recorded_event_attributes.failure
        for event in one.events
        if event.HasField("marker_recorded_event_attributes")
        and event.marker_recorded_event_attributes.HasField("failure")
    ]
    kinds = [failure.application_failure_info.type for failure in failures]
    assert kinds == ["ValidationError"] * 5
    assert all(not failure.stack_trace and not failure.HasField("cause") for failure in failures)


async def test_a_workflow_says_what_it_is_and_how_it_goes(told: Told) -> None:
    job = told.job("plain")
    first = (await story(told.client, job)).events[0]
    summary, details = (json.loads(payload.data) for payload in payloads(first.user_metadata))
    assert summary == "message on web, channel plain"
    assert f"[Job `{job}`](https://maestro.example/queue/{job})" in details
    metadata = await told.client.get_workflow_handle(job).query("__temporal_workflow_metadata")
    current = str(metadata)
    assert "a direct message goes to the conductor" in current
    assert "openai/gpt-4o-mini answers: 11 tokens in, 7 out" in current
    assert [word for word in PLANTED if word in current] == []


async def test_a_job_that_does_not_exist_ends_its_workflow(told: Told) -> None:
    described = await told.client.get_workflow_handle("nobody").describe()
    assert described.status is WorkflowExecutionStatus.FAILED
    assert told.maestro.query("SELECT 1 FROM queue WHERE id = 'message-nobody'") == []


async def test_nothing_runs_any_more(told: Told) -> None:
    sql = "SELECT 1 FROM queue WHERE status IN ('pending', 'running')"
    await until(lambda: not told.maestro.query(sql), what="the end of all jobs")
    assert told.maestro.query("SELECT 1 FROM outbound_lanes") == []
