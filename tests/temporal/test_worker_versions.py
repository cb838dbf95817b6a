"""Releases side by side: new jobs begin with the promoted one, and a release that ended leaves no job behind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import structlog
from temporalio import activity, workflow
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentManagerRequest
from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleSpec, WorkflowExecutionStatus
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from maestro.domain.errors import TemporalUnavailable
from maestro.domain.health import Diagnosis, DiagnosisLevel
from maestro.domain.jobs.job import JobStatus
from temporal import deployments as deployments_module
from temporal import versions as versions_module
from temporal.client import connect
from temporal.deployments import (
    WorkerVersion,
    build_name,
    describe_deployment,
    diagnose_versions,
    list_versions,
    promote_version,
)
from temporal.endpoint import Endpoint
from temporal.engine import FAILURE_TYPES, Engine, WorkerParts
from temporal.namespace import ensure_search_attributes
from temporal.reconciler import RECOVERIES, Reconciler
from temporal.sdk import report_divergence
from temporal.versions import Versions
from tests.support.instance import until
from tests.support.job_rows import JobRows
from tests.support.temporal_gate import NO_WORKERS, cutting_gate, plain_gate, port_of, temporal_server

pytestmark = [pytest.mark.xdist_group("diagnosis")]

QUEUE = "maestro"


@activity.defn
async def nothing() -> None:
    """Do nothing."""


NO_VERSIONS = ("--dynamic-config-value", "system.enableDeploymentVersions=false")


@workflow.defn(name="Waiting")
class OldWaiting:
    """Waits until it is told to end."""

    def __init__(self) -> None:
        self._over = False

    @workflow.run
    async def run(self) -> str:
        await workflow.sleep(0.001)
        await workflow.wait_condition(lambda: self._over)
        return "old"

    @workflow.signal
    def finish(self) -> None:
        self._over = True


@workflow.defn(name="Waiting")
class NewWaiting(OldWaiting):
    """Does the same in code with one command more."""

    @workflow.run
    async def run(self) -> str:
        workflow.upsert_memo({"release": "new"})
        await workflow.sleep(0.001)
        await workflow.wait_condition(lambda: self._over)
        return "new"

    @workflow.signal
    def finish(self) -> None:
        self._over = True


@asynccontextmanager
async def running_server(folder: Path, *arguments: str) -> AsyncIterator[str]:
    """Run a Temporal server and return its address."""
    async with temporal_server(folder, *arguments) as server:
        yield server.address


async def open_client(address: str) -> Client:
    """Connect as a process of its own does: the SDK knows workers by their client."""
    return await connect(Endpoint(address, "default"))


@asynccontextmanager
async def release(
    client: Client, build: str, code: type, diverged: Callable[[], None] = lambda: None
) -> AsyncIterator[WorkerVersion]:
    """Run the worker of a release for the length of a block."""
    version = WorkerVersion.of_queue(QUEUE, build)
    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[code],
        workflow_runner=UnsandboxedWorkflowRunner(),
        deployment_config=version.worker_config(),
        workflow_failure_exception_types=FAILURE_TYPES,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    )
    report_divergence(worker, diverged)
    async with worker:
        yield version


def versions_of(build: str, said: list[str], *, promote: bool = False) -> Versions:
    """Return the versions of a process of this build."""
    versions = Versions(QUEUE, said.append, promote=promote)
    versions.version = WorkerVersion.of_queue(QUEUE, build)
    return versions


async def current_build(client: Client) -> str:
    state = await describe_deployment(client, QUEUE)
    return state.current if state is not None else ""


@asynccontextmanager
async def keeping(versions: Versions, client: Client, settled: asyncio.Event | None = None) -> AsyncIterator[None]:
    """Keep the versions for the length of a block, as a process does whose workers poll."""
    event = settled or asyncio.Event()
    task = asyncio.create_task(versions.run(client, lambda: True, event.set))
    try:
        yield
    finally:
        task.cancel()


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions_module, "LOOK_SECONDS", 0.1)


async def test_a_first_start_needs_no_promotion(tmp_path: Path) -> None:
    async with running_server(tmp_path) as address:
        client, said = await open_client(address), list[str]()
        first, second = versions_of("one", said), versions_of("two", said)
        for versions in (first, second):
            await versions.prepare(client)
            assert versions.config is not None
        assert (await current_build(client), said) == ("one", [])
        assert (first.is_current, second.is_current) == (True, False)
        async with release(client, "one", OldWaiting):
            handle = await client.start_workflow("Waiting", id="first", task_queue=QUEUE)
            await handle.signal("finish")
            assert await handle.result() == "old"


async def test_jobs_stay_with_their_release_and_new_ones_begin_with_the_promoted_one(tmp_path: Path) -> None:
    async with running_server(tmp_path) as address, AsyncExitStack() as stack:
        client, said = await open_client(address), list[str]()
        old, new = versions_of("old", said), versions_of("new", said, promote=True)
        await old.prepare(client)
        await stack.enter_async_context(release(await open_client(address), "old", OldWaiting))
        begun = await client.start_workflow("Waiting", id="begun", task_queue=QUEUE)
        await until_started(begun.id, client)
        await new.prepare(client)
        await stack.enter_async_context(release(await open_client(address), "new", NewWaiting))
        settled = asyncio.Event()
        async with keeping(new, client, settled):
            async with asyncio.timeout(30):
                await settled.wait()
        assert (await current_build(client), said) == ("new", ["New jobs begin with new from now on."])
        fresh = await client.start_workflow("Waiting", id="fresh", task_queue=QUEUE)
        for handle, answer in ((begun, "old"), (fresh, "new")):
            await handle.signal("finish")
            assert await handle.result() == answer
        # A worker of the old release that starts again must not take the jobs back, unless it is told to.
        again, settled = versions_of("old", said, promote=True), asyncio.Event()
        async with keeping(again, client, settled), asyncio.timeout(30):
            await settled.wait()
        assert await current_build(client) == "new"
        assert "which replaced old before" in said[-1]
        assert await promote_version(client, old.version, 30) == "new"
        assert await current_build(client) == "old"


async def test_the_diagnosis_names_the_current_version_and_those_with_open_workflows(tmp_path: Path) -> None:
    async with running_server(tmp_path) as address, AsyncExitStack() as stack:
        client, endpoint = await open_client(address), Endpoint(address, "default")
        assert "no worker has polled with a version yet" in (await only(endpoint)).found
        old = await stack.enter_async_context(release(await open_client(address), "old", OldWaiting))
        await promote_version(client, old, 30)
        begun = await client.start_workflow("Waiting", id="begun", task_queue=QUEUE)
        await until_started(begun.id, client)
        await until_counted(client, str(old))
        found = await only(endpoint)
        assert found.found == f"new jobs begin with old, and this release is {build_name()}; open workflows: 1 of old"
        assert (found.verdict, found.fix) == (
            DiagnosisLevel.NOTE,
            "`maestro promote` lets new jobs begin with this release.",
        )
        own = await stack.enter_async_context(release(await open_client(address), build_name(), NewWaiting))
        await promote_version(client, own, 30)
        found = await only(endpoint)
        assert found.found == f"new jobs begin with {build_name()}; open workflows: 1 of old"
        assert (found.verdict, found.fix) == (DiagnosisLevel.FINE, "")
        await begun.signal("finish")
        await begun.result()
    assert await diagnose_versions(endpoint, QUEUE) == []


async def only(endpoint: Endpoint) -> Diagnosis:
    """Return what is said of the versions."""
    [found] = await diagnose_versions(endpoint, QUEUE)
    return found


async def until_counted(client: Client, version: str) -> None:
    """Wait until Temporal finds the open workflow of a version, which it does a moment after its first task."""
    query = f"ExecutionStatus = 'Running' AND TemporalWorkerDeploymentVersion = '{version}'"
    async with asyncio.timeout(30):
        while (await client.count_workflows(query)).count == 0:  # noqa: ASYNC110 - Temporal tells nobody
            await asyncio.sleep(0.05)


async def replace_by(build: str, client: Client, address: str) -> None:
    """Promote a build whose worker runs for a moment."""
    async with release(await open_client(address), build, NewWaiting) as version:
        await promote_version(client, version, 30)


async def until_started(workflow_id: str, client: Client) -> None:
    """Wait until a worker has done the first task of a workflow."""

    async def is_pinned() -> bool:
        info = (await client.get_workflow_handle(workflow_id).describe()).raw_description.workflow_execution_info
        return bool(info.versioning_info.deployment_version.build_id)

    async with asyncio.timeout(30):
        while not await is_pinned():  # noqa: ASYNC110 - Temporal tells nobody
            await asyncio.sleep(0.05)


async def test_a_schedule_starts_its_runs_with_the_current_release(tmp_path: Path) -> None:
    async with running_server(tmp_path) as address:
        client = await open_client(address)
        await versions_of("old", []).prepare(client)
        action = ScheduleActionStartWorkflow("Waiting", id="planned", task_queue=QUEUE)
        schedule = await client.create_schedule("daily", Schedule(action=action, spec=ScheduleSpec()))
        both = (
            release(await open_client(address), "old", OldWaiting),
            release(await open_client(address), "new", NewWaiting),
        )
        async with both[0], both[1] as new:
            await promote_version(client, new, 30)
            await schedule.trigger()
            planned: list[str] = []
            while not planned:
                planned = [one.id async for one in client.list_workflows("WorkflowType = 'Waiting'")]
            handle = client.get_workflow_handle(planned[0])
            await handle.signal("finish")
            assert await handle.result() == "new"


async def test_a_release_nobody_runs_is_replaced_by_the_next_worker(tmp_path: Path) -> None:
    async with running_server(tmp_path) as address:
        client, said = await open_client(address), list[str]()
        await versions_of("gone", said).prepare(client)
        next_one = versions_of("next", said)
        await next_one.prepare(client)
        async with release(client, "next", NewWaiting), keeping(next_one, client):
            handle = await client.start_workflow("Waiting", id="waits", task_queue=QUEUE)
            await handle.signal("finish")
            assert await handle.result() == "new"
            await until(lambda: bool(said), what="the report")
        assert said == ["The current version has no worker, so new jobs begin with next from now on."]


@pytest.mark.parametrize("code", [OldWaiting, NewWaiting], ids=["same code", "other code"])
async def test_a_workflow_of_a_release_that_ended_goes_on_at_once_with_the_next(
    tmp_path: Path, code: type[OldWaiting]
) -> None:
    """With other code it fails and is given a new run, which is not held against the job."""
    (tmp_path / "server").mkdir()
    rows = JobRows.at(tmp_path)
    job_id = rows.add("hello")
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, status=JobStatus.RUNNING, recoveries=RECOVERIES)
    async with running_server(tmp_path / "server") as address:
        client, said = await open_client(address), list[str]()
        old = versions_of("old", said)
        await old.prepare(client)
        old_client = await open_client(address)
        async with release(old_client, "old", OldWaiting):
            handle = await client.start_workflow("Waiting", id=job_id, task_queue=QUEUE)
            await until_started(job_id, client)
            await replace_by("new", client, address)
        await old.hand_over(old_client)
        resumed = asyncio.Event()
        reconciler = Reconciler(rows.store, lambda: 600, resumed.set)
        reconciling = asyncio.create_task(reconciler.run(client))
        async with release(await open_client(address), "new", code, reconciler.check_soon), asyncio.timeout(30):
            await handle.signal("finish")
            if code is OldWaiting:
                assert await handle.result() == "old"
            else:
                await resumed.wait()
                assert (await handle.describe()).status is WorkflowExecutionStatus.FAILED
        reconciling.cancel()
    with rows.store.view() as tx:
        job = tx.jobs.get(job_id)
    other = code is NewWaiting
    assert (job.status, job.run, job.recoveries) == (
        (JobStatus.PENDING, 2, RECOVERIES) if other else (JobStatus.RUNNING, 1, RECOVERIES)
    )
    rows.store.close()


async def test_a_workflow_of_a_killed_release_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The killed worker hands nothing over, and Temporal still lists it: its workflow waits too long."""
    monkeypatch.setattr(versions_module, "ABANDONED_SECONDS", 0.5)
    async with running_server(tmp_path) as address:
        client, said = await open_client(address), list[str]()
        old, new = versions_of("old", said), versions_of("new", said)
        await old.prepare(client)
        async with release(await open_client(address), "old", OldWaiting):
            handle = await client.start_workflow("Waiting", id="left", task_queue=QUEUE)
            await until_started("left", client)
            await replace_by("new", client, address)
        assert (await list_versions(client, QUEUE)).is_alive("old")
        await new.prepare(client)
        async with release(await open_client(address), "new", OldWaiting), keeping(new, client), asyncio.timeout(30):
            await handle.signal("finish")
            assert await handle.result() == "old"


async def test_a_replaced_release_waits_for_its_workflows_before_it_ends(tmp_path: Path) -> None:
    async with running_server(tmp_path) as address:
        client, said = await open_client(address), list[str]()
        old = versions_of("old", said)
        await old.prepare(client)
        async with release(client, "old", OldWaiting):
            await old.wait_for_workflows(client, 600)  # it is current: other workers of it go on
            handle = await client.start_workflow("Waiting", id="open", task_queue=QUEUE)
            await until_started("open", client)
            await replace_by("new", client, address)
            waiting = asyncio.create_task(old.wait_for_workflows(client, 600))
            await until(lambda: not waiting.done(), what="the wait")
            await handle.signal("finish")
            async with asyncio.timeout(30):
                await waiting
            assert await handle.result() == "old"


async def test_a_server_without_versions_is_told_and_used_without_them(tmp_path: Path) -> None:
    async with running_server(tmp_path, *NO_VERSIONS) as address:
        client, said = await open_client(address), list[str]()
        versions = versions_of("one", said, promote=True)
        await versions.prepare(client)
        assert versions.config is None
        assert versions.is_settled
        assert versions.is_current
        (told,) = said
        assert "does not let this worker use worker versions" in told
        with pytest.raises(TemporalUnavailable, match="did not make one the current version"):
            await promote_version(client, versions.version, 0)


async def test_a_deployment_that_others_manage_is_told_and_its_jobs_are_done_without_versions(tmp_path: Path) -> None:
    async with running_server(tmp_path) as address:
        client, said = await open_client(address), list[str]()
        async with release(await open_client(address), "other", OldWaiting) as other, asyncio.timeout(60):
            state = None
            while state is None:  # The server tells no client when its own workers know a deployment.
                with suppress(RPCError):
                    state = await describe_deployment(client, QUEUE)
                await asyncio.sleep(0.1)
        managed = SetWorkerDeploymentManagerRequest(
            namespace=client.namespace,
            deployment_name=other.deployment,
            manager_identity="a controller",
            identity="an administrator",
        )
        await client.workflow_service.set_worker_deployment_manager(managed)
        versions = versions_of("one", said)
        await versions.prepare(client)
        assert versions.config is None
        (told,) = said
        assert "does not let this worker use worker versions (FAILED_PRECONDITION" in told


async def test_a_start_asks_again_after_the_connection_broke_in_its_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions_module, "RETRY_SECONDS", 0.05)
    async with running_server(tmp_path) as address, cutting_gate(int(address.rpartition(":")[2])) as gate:
        client, said = await open_client(f"127.0.0.1:{gate.port}"), list[str]()
        versions = versions_of("one", said)
        gate.cuts = 3
        await versions.prepare(client)
        assert (gate.cuts, said) == (0, [])
        assert versions.config is not None
        gate.cuts = 1
        with pytest.raises(RPCError):
            await ensure_search_attributes(client, "default")


async def test_a_start_asks_again_while_the_server_has_no_workers_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker without a version would get no jobs: those stay with the current version."""
    monkeypatch.setattr(versions_module, "RETRY_SECONDS", 0.05)
    said = list[str]()
    async with running_server(tmp_path) as address:
        await versions_of("one", said).prepare(await open_client(address))
    monkeypatch.setattr(versions_module, "QUIET_SECONDS", 0.0)
    versions = versions_of("one", said)
    async with temporal_server(tmp_path, *NO_WORKERS) as server, plain_gate(port_of(server)) as port:
        with monkeypatch.context() as patch, structlog.testing.capture_logs() as lines:
            patch.setattr(deployments_module, "ASK_TIMEOUT", timedelta(seconds=1.5))
            preparing = asyncio.create_task(versions.prepare(await open_client(f"127.0.0.1:{port}")))
            await until(
                lambda: preparing.done() or any("no poller seen" in line.get("reason", "") for line in lines),
                what="the server's answer",
            )
    async with temporal_server(tmp_path) as server, plain_gate(port_of(server), port), asyncio.timeout(60):
        await preparing
    assert versions.config is not None
    (told,) = said
    assert "takes no jobs until it does" in told


async def test_a_worker_polls_for_model_calls_only_after_its_libraries_are_loaded(tmp_path: Path) -> None:
    """And a process is ready only when all its workers poll."""
    loaded = asyncio.Event()
    async with running_server(tmp_path) as address:
        engine = Engine(Endpoint(address, "default"), lambda _: None, Versions(QUEUE, lambda _: None, promote=True))
        steps = WorkerParts(QUEUE, [nothing], (), timedelta(0), versioned=True)
        calls = replace(steps, task_queue=f"{QUEUE}-llm", workflows=False, ready=loaded_after(loaded))
        polls, calling, settled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        tasks = [
            asyncio.create_task(engine.run(engine.run_versions(settled.set))),
            asyncio.create_task(engine.run_worker(steps, polls.set)),
            asyncio.create_task(engine.run_worker(calls, calling.set)),
        ]
        async with asyncio.timeout(60):
            await polls.wait()
            assert [engine.is_polling, calling.is_set(), settled.is_set()] == [False] * 3
            loaded.set()
            await calling.wait()
            await settled.wait()
        assert engine.is_polling
        await engine.drain_workers()
        for task in tasks:
            task.cancel()


def loaded_after(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        await event.wait()

    return wait
