"""``maestro fsck`` beside a running Maestro: silent while it works, and exact about what contradicts."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionStatus

from maestro.diagnostics.consistency import NEW_SECONDS, check_consistency
from maestro.domain.consistency import ConsistencyReport
from maestro.installation.storage import open_files
from maestro.settings.addresses import temporal_endpoint
from temporal.executions import read_workflows, terminate_workflows
from tests.support.instance import Instance, running_instance

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("fsck")]

MESSAGE = "MessageWorkflow"
PEOPLE = 4
SAID = 5
PATIENCE = 60.0
LOOK = 0.05
LOST = "0" * 64
LATER = timedelta(hours=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def maestro(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with running_instance(tmp_path_factory.mktemp("fsck")) as instance:
        yield instance


async def checked(maestro: Instance, *, repair: bool = False) -> ConsistencyReport:
    """Check the installation as the command does, in another thread."""
    settings = maestro.loaded.settings
    return await asyncio.to_thread(
        check_consistency, settings, temporal_endpoint(settings), lambda _text: None, repair=repair
    )


def problems(report: ConsistencyReport) -> list[tuple[str, str]]:
    return [(finding.check, finding.problem) for finding in report.findings]


async def test_nothing_is_found_while_people_talk(maestro: Instance) -> None:
    async def talk(number: int) -> None:
        async with maestro.client(f"talker-{number}") as person:
            for said in range(SAID):
                await person.ask(f"message {said} of {number}")

    talking = asyncio.gather(*(talk(number) for number in range(PEOPLE)))
    reports = []
    while not talking.done():
        reports.append(await checked(maestro))
    await talking
    reports.append(await checked(maestro))
    assert [problems(report) for report in reports] == [[]] * len(reports)
    assert {"pages", "rows", "media", "workflows", "schedules"} <= set(reports[-1].checks)
    assert reports[-1].skipped == ()


async def test_a_workflow_without_a_job_is_found_with_the_command_that_ends_it(maestro: Instance) -> None:
    client = await maestro.temporal()
    settings = maestro.loaded.settings
    handle = await client.start_workflow(
        MESSAGE, None, id="message-of-another-store", task_queue=settings.temporal.task_queue, start_delay=LATER
    )
    try:
        report = await checked(maestro)
    finally:
        await handle.terminate()
    assert not report.ok
    [finding] = report.findings
    assert finding.problem == "workflow message-of-another-store is open, and the store has no job of this id"
    assert "temporal workflow terminate --workflow-id message-of-another-store" in finding.fix


async def test_lost_unused_and_forgotten_files_are_found_and_the_remains_are_removed(maestro: Instance) -> None:
    settings, files = maestro.loaded.settings, open_files(maestro.loaded.settings)
    unused = files.store_content(b"nobody's")
    remains = settings.data_dir / "media" / "arriving-dead"
    remains.mkdir()
    long_ago = time.time() - NEW_SECONDS - 60
    for path in (files.path_of_digest(unused), remains):
        os.utime(path, (long_ago, long_ago))
    async with maestro.client("files") as person:
        await person.ask("hello")
        [job] = await maestro.ended("files", "completed")
    maestro.change("UPDATE deliveries SET digest = ? WHERE job_id = ?", LOST, job["id"])
    report = await checked(maestro, repair=True)
    assert problems(report) == [
        ("missing media", f"the file {LOST} is not in the media folder, and rows name it"),
        ("unused media", f"no row names the file {unused} (8 bytes)"),
    ]
    assert report.repaired == ("deleted 1 temporary folders of killed processes",)
    assert not remains.exists()
    files.path_of_digest(unused).unlink()
    maestro.change("UPDATE deliveries SET digest = '' WHERE job_id = ?", job["id"])
    assert (await checked(maestro)).ok


async def test_a_restore_ends_the_open_workflows_of_its_own_task_queue_only(maestro: Instance) -> None:
    client, endpoint = await maestro.temporal(), temporal_endpoint(maestro.loaded.settings)
    for queue, number in (("replaced", 1), ("replaced", 2), ("another", 3)):
        await client.start_workflow(MESSAGE, None, id=f"{queue}-{number}", task_queue=queue, start_delay=LATER)
    async with asyncio.timeout(PATIENCE):
        while len((await read_workflows(endpoint, "replaced")).open) < 2:  # noqa: ASYNC110 - a list is a little late
            await asyncio.sleep(LOOK)
    assert await terminate_workflows(endpoint, "replaced", "the store was restored") == 2
    states = [(await client.get_workflow_handle(f"replaced-{number}").describe()).status for number in (1, 2)]
    assert states == [WorkflowExecutionStatus.TERMINATED] * 2
    other = client.get_workflow_handle("another-3")
    assert (await other.describe()).status is WorkflowExecutionStatus.RUNNING
    await other.terminate()
