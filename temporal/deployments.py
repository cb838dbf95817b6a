"""The requests about a worker deployment: its versions, the current one, and the version of a workflow (ADR 48)."""

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.deployment.v1 import WorkerDeploymentVersion as DeploymentVersion
from temporalio.api.enums.v1 import (
    PendingActivityState,
    PendingWorkflowTaskState,
    TaskQueueType,
    WorkerDeploymentVersionStatus,
)
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import VersioningOverride, WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentResponse,
    DescribeWorkflowExecutionResponse,
    SetWorkerDeploymentCurrentVersionRequest,
    UpdateWorkflowExecutionOptionsRequest,
)
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkerDeploymentConfig

import workflows
from activities.delivery import DeliveryActivities
from activities.media import MediaActivities
from activities.routing import TypingActivities
from maestro import domain
from maestro.domain.errors import TemporalUnavailable
from maestro.domain.health import Diagnosis, DiagnosisLevel
from maestro.domain.release import release
from temporal.client import ASK_TIMEOUT, AWAY, connect
from temporal.endpoint import Endpoint
from temporal.namespace import CONNECT_SECONDS, POLLER_COUNTS

CHANGE_TIMEOUT = timedelta(seconds=15)
"""The timeout of a change of the current version, which Temporal answers when all parts of the server know it."""
TICK_SECONDS = 0.2
"""Seconds between two looks at what changes in a moment: the start of polling, or the end of the last workflows."""

STEPS_OF_CONNECTORS = frozenset(
    step.__name__ for step in (DeliveryActivities.deliver, MediaActivities.fetch_media, TypingActivities.show_typing)
)
"""Activities on queues without versions, whose wait says nothing about the workers of a version."""

REFUSED = frozenset(
    {
        RPCStatusCode.UNIMPLEMENTED,
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.INVALID_ARGUMENT,
    }
)
"""Answers of a server that knows no versions, has them turned off, or does not let Maestro use them."""
_REPLACED = frozenset(
    {
        WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINING,
        WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_DRAINED,
    }
)


@cache
def build_name() -> str:
    """Return the name of this build: the release, and a digest of the code that decides what a workflow does.

    The digest tells builds of one release apart, such as two states of a development tree.
    """
    digest = sha256()
    for package in (workflows, domain):
        folder = Path(package.__path__[0])
        for file in sorted(folder.rglob("*.py")):
            digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return f"{release()}-{digest.hexdigest()[:8]}"


@dataclass(frozen=True)
class WorkerVersion:
    """A build as a version of a worker deployment."""

    deployment: str
    build: str

    @classmethod
    def of_queue(cls, main_queue: str, build: str = "") -> "WorkerVersion":
        """Return the version of a build, by default this one, for the installation with this main queue."""
        return cls(main_queue.replace(".", "_").replace(":", "_"), build or build_name())

    def __str__(self) -> str:
        """Return the version as Temporal's search attributes contain it."""
        return f"{self.deployment}:{self.build}"

    def worker_config(self) -> WorkerDeploymentConfig:
        """Return the options of a worker of this version, to which its workflows are pinned."""
        version = WorkerDeploymentVersion(self.deployment, self.build)
        return WorkerDeploymentConfig(
            version=version, use_worker_versioning=True, default_versioning_behavior=VersioningBehavior.PINNED
        )


@dataclass(frozen=True)
class DeploymentState:
    """The current version of a deployment, and the versions by whether they were replaced before."""

    current: str
    builds: tuple[str, ...]
    replaced: frozenset[str]
    token: bytes

    @classmethod
    def of(cls, answer: DescribeWorkerDeploymentResponse) -> "DeploymentState":
        """Read Temporal's description."""
        info = answer.worker_deployment_info
        builds = tuple(one.deployment_version.build_id for one in info.version_summaries)
        replaced = (one.deployment_version.build_id for one in info.version_summaries if one.status in _REPLACED)
        current = info.routing_config.current_deployment_version.build_id
        return cls(current, builds, frozenset(replaced), answer.conflict_token)


async def describe_deployment(client: Client, deployment: str) -> DeploymentState | None:
    """Return the state of a deployment, None if no worker of it ever polled; raises ``RPCError``.

    ``FAILED_PRECONDITION`` is raised as ``UNAVAILABLE``: workers inside the server answer this question, and they do
    not poll yet when the server has just started.
    """
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment)
    try:
        answer = await client.workflow_service.describe_worker_deployment(request, timeout=ASK_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        if error.status is RPCStatusCode.FAILED_PRECONDITION:
            raise RPCError(error.message, RPCStatusCode.UNAVAILABLE, error.raw_grpc_status) from error
        raise
    return DeploymentState.of(answer)


async def diagnose_versions(endpoint: Endpoint, main_queue: str) -> list[Diagnosis]:
    """Return with which build new jobs begin, and which builds have open workflows, within about five seconds.

    Without an answer there is no diagnosis: that of the server names the cause.
    """
    own, level, fix = WorkerVersion.of_queue(main_queue), DiagnosisLevel.FINE, ""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            client = await connect(endpoint)
            state = await describe_deployment(client, own.deployment)
        async with asyncio.timeout(CONNECT_SECONDS):
            builds = state.builds if state is not None else ()
            counts = await asyncio.gather(*(_count_open(client, replace(own, build=build)) for build in builds))
    except AWAY:
        return []
    if state is None or not state.current:
        found = "no worker has polled with a version yet, so new jobs begin with any"
    else:
        found = f"new jobs begin with {state.current}"
        if state.current != own.build:
            level, fix = DiagnosisLevel.NOTE, "`maestro promote` lets new jobs begin with this release."
            found += f", and this release is {own.build}"
    working = ", ".join(f"{count} of {build}" for build, count in zip(builds, counts, strict=True) if count)
    found += f"; open workflows: {working or 'none'}"
    return [Diagnosis(check="worker versions", verdict=level, found=found, fix=fix)]


async def _count_open(client: Client, version: WorkerVersion) -> int:
    query = f"ExecutionStatus = 'Running' AND TemporalWorkerDeploymentVersion = '{version}'"
    return (await client.count_workflows(query, rpc_timeout=ASK_TIMEOUT)).count


async def set_current(client: Client, version: WorkerVersion, *, first: bool = False, token: bytes = b"") -> None:
    """Let new workflows begin with this version; raises ``RPCError``.

    Temporal refuses a version that does not poll all queues of the current one, unless it is the ``first`` version.
    With a ``token``, it refuses if the deployment has changed since.
    """
    await client.workflow_service.set_worker_deployment_current_version(
        SetWorkerDeploymentCurrentVersionRequest(
            namespace=client.namespace,
            deployment_name=version.deployment,
            build_id=version.build,
            identity=client.identity,
            allow_no_pollers=first,
            conflict_token=token,
        ),
        timeout=CHANGE_TIMEOUT,
    )


async def promote_version(client: Client, version: WorkerVersion, seconds: float) -> str:
    """Set a version current, waiting up to ``seconds`` for its workers, and return the build that was current.

    Raises ``TemporalUnavailable`` with Temporal's reason and the fix.
    """
    until = asyncio.get_running_loop().time() + seconds
    previous: str | None = None
    while True:
        try:
            if previous is None:
                state = await describe_deployment(client, version.deployment)
                previous = state.current if state is not None else ""
            await set_current(client, version)
        except RPCError as error:
            if error.status in REFUSED - {RPCStatusCode.FAILED_PRECONDITION} or is_over(until):
                raise TemporalUnavailable(
                    f"Temporal did not make {version.build} the current version of {version.deployment} "
                    f"({error.message}). Start `maestro worker` of that release first, and let it run."
                ) from None
        else:
            return previous
        await asyncio.sleep(TICK_SECONDS)


def is_over(until: float) -> bool:
    """Return whether a moment of the event loop's clock has passed."""
    return asyncio.get_running_loop().time() >= until


@dataclass(frozen=True)
class VersionPollers:
    """The current build of the main queue, the builds that polled lately, and the builds and names of living workers.

    A worker that was killed counts as alive for a while.
    """

    current: str
    known: frozenset[str]
    alive: frozenset[tuple[str, str]]

    def is_alive(self, build: str, besides: str = "") -> bool:
        """Return whether a worker of the build may be alive, other than the one with the identity ``besides``."""
        return any(one == build and identity != besides for one, identity in self.alive)


async def list_versions(client: Client, main_queue: str) -> VersionPollers:
    """Return the versions that poll a queue for workflows; raises ``RPCError``."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=main_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=ASK_TIMEOUT)
    since = datetime.now(UTC) - POLLER_COUNTS
    return VersionPollers(
        answer.versioning_info.current_deployment_version.build_id,
        frozenset(one.deployment_options.build_id for one in answer.pollers),
        frozenset(
            (one.deployment_options.build_id, one.identity)
            for one in answer.pollers
            if one.last_access_time.ToDatetime(UTC) > since
        ),
    )


def find_wait(description: DescribeWorkflowExecutionResponse) -> float:
    """Return for how many seconds a task of a workflow has been waiting for a worker of its version; -1 if none."""
    waits = []
    task = description.pending_workflow_task
    if task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED:
        waits.append(task.scheduled_time)
    waits += [
        activity.scheduled_time
        for activity in description.pending_activities
        if activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        and activity.activity_type.name not in STEPS_OF_CONNECTORS
    ]
    return max(((datetime.now(UTC) - since.ToDatetime(UTC)).total_seconds() for since in waits), default=-1.0)


async def move_workflow(client: Client, workflow_id: str, version: WorkerVersion) -> None:
    """Pin an open workflow to another version; an activity that is running meanwhile ends as if nothing had happened.

    The new version reads the history. If its code would have gone another way, the workflow fails, and the reconciler
    gives the job a new run.
    """
    pinned = VersioningOverride.PinnedOverride(
        behavior=VersioningOverride.PINNED_OVERRIDE_BEHAVIOR_PINNED,
        version=DeploymentVersion(deployment_name=version.deployment, build_id=version.build),
    )
    options = WorkflowExecutionOptions(versioning_override=VersioningOverride(pinned=pinned))
    request = UpdateWorkflowExecutionOptionsRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow_id),
        workflow_execution_options=options,
        update_mask=FieldMask(paths=["versioning_override"]),
    )
    await client.workflow_service.update_workflow_execution_options(request, timeout=ASK_TIMEOUT)
