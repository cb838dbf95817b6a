"""Records a history of every way a message can go, for the replay tests: ``python -m tests.histories.record``.

Record again when the flow has changed on purpose, and look at the difference: histories of released code that are
replaced instead of kept mean that jobs which run during an update fail. The histories in ``earlier`` are of runs whose
``JobRef`` is not ``grouped``: each step is an activity of its own.
"""

import asyncio
import contextlib
import json
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from temporalio.client import WorkflowFailureError

from maestro.domain.jobs.job import Job, JobKind, JobRef
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.messages import Address
from maestro.domain.people.people import PersonId
from maestro.domain.schedules.edits import NewSchedule
from maestro.domain.schedules.schedule import Heartbeat
from tests.support.histories import Story, story
from tests.support.instance import Instance, running_instance
from tests.support.llm_server import Failure
from workflows.definitions import ScheduledWorkflow

FOLDER = Path(__file__).parent
KEY = "a key that makes its holder a user"
READ_ONLY = "dropped"
SUM = ("calculate", '{"expression": "2 + 3"}')
WORKER = re.compile(r"\d+@[\w.-]+")
"""Process id and host name of who did something; nobody else's business."""


async def answered(maestro: Instance, channel: str) -> str:
    """Be answered."""
    return await said(maestro, channel, "completed")


async def dropped(maestro: Instance, channel: str) -> str:
    """Speak where nobody may."""
    return await said(maestro, channel, "dropped")


async def control_reply(maestro: Instance, channel: str) -> str:
    """Say a control word."""
    return await said(maestro, channel, "completed", "/status")


async def failed(maestro: Instance, channel: str) -> str:
    """Be refused by the provider and be told so."""
    maestro.llm.script(channel, failure=Failure.status(400))
    return await said(maestro, channel, "failed")


async def provider_retry(maestro: Instance, channel: str) -> str:
    """Be answered at the third attempt."""
    maestro.llm.script(channel, failure=Failure.status(500), times=2)
    return await said(maestro, channel, "completed")


async def stopped(maestro: Instance, channel: str) -> str:
    """Stop a running call."""
    maestro.llm.script(channel, delay=60)
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say(channel)
        await maestro.asked(channel)
        await client.say("/stop")
        return str((await maestro.ended(channel, "cancelled"))[0]["id"])


async def tool_rounds(maestro: Instance, channel: str) -> str:
    """Be answered after two tools side by side and then a third."""
    maestro.llm.script(channel, calls=(SUM, SUM), rounds=0)
    maestro.llm.script(channel, calls=(SUM,), rounds=1)
    return await said(maestro, channel, "completed")


async def question(maestro: Instance, channel: str) -> str:
    """Be asked, while another tool is called, and say nothing: the run ends with the wait."""
    maestro.llm.script(channel, calls=(("ask_question", '{"question": "Which?"}'), SUM), rounds=0)
    return await said(maestro, channel, "waiting")


async def approval(maestro: Instance, channel: str) -> str:
    """Have a conductor act after text from outside was read, and say nothing: the run ends with the wait."""
    maestro.llm.script(channel, calls=(("http_fetch", '{"url": "http://10.0.0.1/"}'),), rounds=0)
    maestro.llm.script(channel, reply="[CREATE_CLIENT]\nname: Mill\n[/CREATE_CLIENT]", rounds=1)
    async with maestro.client(channel, api_key=KEY) as client:
        with maestro.operator() as operator, operator.store.begin() as tx:
            tx.users.owners.add_owner(PersonId("web", client.user), "operator")
        await client.say(channel)
        await maestro.ended(channel, "waiting")
    return str(maestro.jobs(channel)[0]["id"])


async def account_wait(maestro: Instance, channel: str) -> str:
    """Meet a provider that limits its only account for longer than the recording takes."""
    maestro.llm.script(channel, failure=Failure.limited(3600))
    return await said(maestro, channel, "waiting")


async def delegated(maestro: Instance, channel: str) -> str:
    """Be answered by an agent that passes a task on."""
    maestro.llm.script(channel, reply=f"Ada will. [DELEGATE:ada]a task of {channel}[/DELEGATE]")
    job_id = await said(maestro, channel, "completed")
    await maestro.ended(channel, "completed", 2)
    return job_id


async def task(maestro: Instance, channel: str) -> str:
    """Be a task whose result the delegator waits to hear."""
    maestro.llm.script(channel, reply="I ask. [DELEGATE:ada wait]the job of a delegate[/DELEGATE]")
    maestro.llm.script("the job of a delegate", reply="It is done.")
    parent = await said(maestro, channel, "completed")
    await maestro.ended(channel, "completed", 3)
    (row,) = maestro.query("SELECT id FROM queue WHERE parent_id = ? AND hears", parent)
    return str(row["id"])


async def step_retry(maestro: Instance, channel: str) -> str:
    """Meet a row that cannot be read until it is mended."""
    maestro.llm.script("ahead of it", delay=1)
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say("ahead of it")
        await client.say(channel)
        spoil, fields = "UPDATE inbox SET attachments = ? WHERE content = ?", "[5]"
        maestro.change(spoil, fields, channel)
        await maestro.until("SELECT 1 FROM job_steps WHERE state = 'failed' AND error = 'ValidationError'")
        maestro.change(spoil, "[]", channel)
        return str((await maestro.ended(channel, "completed", 2))[1]["id"])


async def scheduled(maestro: Instance, channel: str) -> str:
    """Be a time of a schedule that has come."""
    planned(maestro, channel)
    return await began(maestro, channel, "completed")


async def silent(maestro: Instance, channel: str) -> str:
    """Be one with nothing to tell."""
    planned(maestro, channel)
    maestro.llm.script(f"Look at {channel}", reply="[SILENT]")
    return await began(maestro, channel, "completed")


async def skipped(maestro: Instance, channel: str) -> str:
    """Be one that makes no job, because somebody paused the schedule."""
    planned(maestro, channel)
    maestro.change("UPDATE heartbeat_configs SET enabled = 0 WHERE name = ?", channel)
    return await began(maestro, channel)


async def script(maestro: Instance, channel: str) -> str:
    """Fetch from an address that nobody may ask, which fails without a word to anybody."""
    planned(maestro, channel)
    script = '{"url": "http://10.0.0.1/", "template": "{{all}}"}'
    maestro.change("UPDATE heartbeat_configs SET script = ? WHERE name = ?", script, channel)
    return await began(maestro, channel, "failed")


async def webhook(maestro: Instance, channel: str) -> str:
    """Be what a program outside began."""
    with maestro.operator() as operator, operator.store.begin() as tx:
        agent, place = tx.agents.get_agent_by_slug("ada"), Address(platform="web", channel=channel).model_dump()
        tx.jobs.add(
            Job(
                id=f"webhook-{channel}",
                kind=JobKind.WEBHOOK,
                agent_id=agent.id,
                task=channel,
                created_at=tx.now,
                **place,
            )
        )
    await maestro.ended(channel, "completed")
    return f"webhook-{channel}"


async def what_if(maestro: Instance, channel: str) -> str:
    """Show what a message would be answered, with a tool on the way."""
    answered_job = await said(maestro, channel, "completed")
    maestro.llm.script(channel, calls=(SUM,), rounds=0)
    with maestro.operator() as operator:
        asked = await operator.jobs.replay(answered_job, ReplayMode.WHAT_IF, "operator")
    await maestro.ended(channel, "completed", 2)
    return asked


def planned(maestro: Instance, channel: str) -> None:
    """Plan a heartbeat that never comes by itself while this is recorded."""
    prompt, place = f"Look at {channel}", {"platform": "web", "channel": channel}
    new = NewSchedule(agent="ada", name=channel, schedule="0 9 1 1 *", prompt=prompt, **place)
    with maestro.operator() as operator, operator.store.begin() as tx:
        tx.background.schedules.add_schedule(Heartbeat, new, "operator")


async def began(maestro: Instance, channel: str, status: str = "") -> str:
    """Do what Temporal does when the time has come, and return the id of the run; without a status it makes no job."""
    (row,) = maestro.query("SELECT id FROM heartbeat_configs WHERE name = ?", channel)
    ref = JobRef(
        job_id="",
        run=1,
        heartbeat_seconds=3,
        model_seconds=60,
        tool_seconds=60,
        tool_rounds=5,
        schedule=f"heartbeat-{row['id']}",
        grouped=True,
    )
    run = f"maestro-{ref.schedule}-2027-01-01T09:00:00Z"
    client = await maestro.temporal()
    await client.start_workflow(ScheduledWorkflow.run, ref, id=run, task_queue="maestro")
    if status:
        await maestro.ended(channel, status)
    return run


async def said(maestro: Instance, channel: str, status: str, text: str = "") -> str:
    """Say something, the channel's name unless told otherwise, and return the id of its job once it has ended so."""
    async with maestro.client(channel, api_key=KEY) as client:
        await client.say(text or channel)
        await maestro.ended(channel, status)
    return str(maestro.jobs(channel)[0]["id"])


SCENARIOS: Mapping[str, Callable[[Instance, str], Awaitable[str]]] = {
    scenario.__name__: scenario
    for scenario in (
        answered,
        dropped,
        control_reply,
        failed,
        provider_retry,
        stopped,
        step_retry,
        tool_rounds,
        question,
        approval,
        delegated,
        task,
        scheduled,
        silent,
        skipped,
        script,
        webhook,
        what_if,
        account_wait,  # leaves no account for anybody after it
    )
}


async def record() -> None:
    """Play every scenario and write its history."""
    binding = {"platform": "web", "channel": READ_ONLY, "agent": "conductor", "permissions": "read_only"}
    agents = [{"slug": "conductor", "role": "conductor"}, {"slug": "ada"}]
    with tempfile.TemporaryDirectory() as folder:
        async with running_instance(Path(folder), agents=agents, web={"apiKey": KEY}, channels=[binding]) as maestro:
            client = await maestro.temporal()
            for name, scenario in SCENARIOS.items():
                job_id = await scenario(maestro, name)
                with contextlib.suppress(WorkflowFailureError):
                    await client.get_workflow_handle(job_id).result()
                write(name, await story(client, job_id))


def write(name: str, one: Story) -> None:
    """Write a history without what is of this machine."""
    text = WORKER.sub("1@worker", json.dumps(json.loads(one.history.to_json()), indent=1))
    (FOLDER / f"{name}.json").write_text(text + "\n")
    print(f"{name}: {len(one.events)} events")


if __name__ == "__main__":
    asyncio.run(record())
