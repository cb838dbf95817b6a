"""Worker versions: the release that runs a workflow, the one that new jobs get, and the move from a release that ended.

Each release polls as a version of one Temporal worker deployment. A workflow stays with the version that began it, so
that a release with other workflow code beside it does no harm (ADR 48).
"""

import asyncio
from collections.abc import Callable

import structlog
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkerDeploymentConfig

from maestro.supervision import gather_limited
from temporal.client import ASK_TIMEOUT
from temporal.deployments import (
    REFUSED,
    TICK_SECONDS,
    DeploymentState,
    VersionPollers,
    WorkerVersion,
    describe_deployment,
    find_wait,
    is_over,
    list_versions,
    move_workflow,
    set_current,
)
from temporal.namespace import PASSING

LOOK_SECONDS = 2.0
"""Seconds between two looks at the versions of the deployment."""
RETRY_SECONDS = 1.0
QUIET_SECONDS = 30.0
"""Seconds of failures at the start after which the operator is told."""
ABANDONED_SECONDS = 10.0
"""Seconds for which a task waits until its version counts as gone, though its worker may have been killed just now.

Temporal lists a killed worker like one that is alive, but gives a living one its tasks at once.
"""
MOVES_AT_ONCE = 20

log = structlog.get_logger(__name__)


class Versions:
    """The version of this process among those of its deployment; ``config`` is None where Temporal has no versions.

    With ``promote``, this version becomes the current one when all workers of this process poll, unless it was replaced
    before: a restart of an old worker must not take the jobs back.
    """

    def __init__(self, main_queue: str, report: Callable[[str], None], *, promote: bool = False) -> None:
        self.version = WorkerVersion.of_queue(main_queue)
        self.config: WorkerDeploymentConfig | None = None
        self.is_current = True
        self.is_settled = not promote
        self._queue = main_queue
        self._report = report
        self._has_others = True
        self._reported = ""

    def begins_jobs(self) -> bool:
        """Return whether new jobs begin with this version."""
        return self.is_current

    async def prepare(self, client: Client) -> None:
        """Find out whether Temporal has versions, and make this one current in a deployment without a current one."""
        report_at, reported = asyncio.get_running_loop().time() + QUIET_SECONDS, False
        while True:
            try:
                state = await describe_deployment(client, self.version.deployment)
                if state is None or not state.current:
                    state = await self._begin_deployment(client, state)
                self.is_current = state is None or state.current == self.version.build
            except RPCError as error:
                if error.status in REFUSED:
                    return self._work_without(error)
                log.info("versions.postponed", status=error.status.name, reason=error.message)
                if not reported and is_over(report_at):
                    reported = True
                    self._report(
                        f"Temporal does not say which worker version is current ({error.message}). This worker takes "
                        "no jobs until it does. Check that the server runs, and its own workers (its worker service)."
                    )
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.config = self.version.worker_config()
                return None

    async def _begin_deployment(self, client: Client, state: DeploymentState | None) -> DeploymentState | None:
        """Set this version current, so that a first start needs nothing; another process may have been faster.

        Return the state afterwards: without a current version where an older server wants to see its worker poll first.
        """
        try:
            await set_current(client, self.version, first=True, token=state.token if state else b"")
        except RPCError as error:
            after = await describe_deployment(client, self.version.deployment)
            if (after is None or not after.current) and error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return after
        return await describe_deployment(client, self.version.deployment)

    def _work_without(self, error: RPCError) -> None:
        self.is_settled = True
        self._report(
            f"Temporal does not let this worker use worker versions ({error.status.name}: {error.message}). It works "
            "without them: jobs that are open during an upgrade may get a new run, which repeats no finished step. "
            "Worker versions need a server from 1.28 on, and the right to set the current version."
        )

    async def run(self, client: Client, polls: Callable[[], bool], settled: Callable[[], None]) -> None:
        """Promote this version when it is wanted or needed, and take over abandoned workflows, until cancelled.

        ``polls`` tells whether all workers of this process poll; ``settled`` is called when this version is promoted,
        or is not to be.
        """
        while True:
            try:
                await self._look(client, polls)
            except RPCError as error:
                log.info("versions.postponed", status=error.status.name)
            if self.is_settled:
                settled()
            await asyncio.sleep(LOOK_SECONDS if self.is_settled or self._reported else TICK_SECONDS)

    async def _look(self, client: Client, polls: Callable[[], bool]) -> None:
        if not (self.is_settled or polls()):
            return
        pollers = await list_versions(client, self._queue)
        self.is_current = pollers.current == self.version.build
        if not self.is_current and polls():
            if not self.is_settled:
                await self._promote(client)
            elif not pollers.is_alive(pollers.current):
                await self._replace(client, pollers)
        if self.is_current and polls():
            self.is_settled = True
        if self.is_current and (self._has_others or pollers.known - {self.version.build}):
            self._has_others = await self._take_over(client, pollers)

    async def _promote(self, client: Client) -> None:
        state = await describe_deployment(client, self.version.deployment)
        if state is not None and self.version.build in state.replaced:
            self.is_settled = True
            self._report(
                f"New jobs stay with {state.current}, which replaced {self.version.build} before. To go back to this "
                "release, run `maestro promote` with it."
            )
            return
        await self._set_current(client, f"New jobs begin with {self.version.build} from now on.")

    async def _replace(self, client: Client, pollers: VersionPollers) -> None:
        """Set this version current if no worker of the current one is left."""
        state = await describe_deployment(client, self.version.deployment)
        if state is None or not (state.current == self.version.build or pollers.is_alive(state.current)):
            await self._set_current(
                client, f"The current version has no worker, so new jobs begin with {self.version.build} from now on."
            )

    async def _set_current(self, client: Client, success: str) -> None:
        try:
            await set_current(client, self.version)
        except RPCError as error:
            if error.status in PASSING:
                raise
            if error.status is not RPCStatusCode.NOT_FOUND and error.message != self._reported:
                self._reported = error.message
                self._report(
                    f"Temporal did not make {self.version.build} the current version ({error.message}). Have an "
                    "administrator run `temporal worker deployment set-current-version --deployment-name "
                    f"{self.version.deployment} --build-id {self.version.build}`."
                )
            return
        self.is_current, self._has_others, self._reported = True, True, ""
        self._report(success)

    # Workflows of versions that ended

    async def wait_for_workflows(self, client: Client, seconds: float) -> None:
        """Wait until no workflow of this version is open, at most for ``seconds``; return at once if it is current.

        The process polls meanwhile: only this version can finish its workflows.
        """
        until = asyncio.get_running_loop().time() + seconds
        try:
            while not is_over(until) and (await list_versions(client, self._queue)).current != self.version.build:
                if not (await client.count_workflows(self._own_workflows, rpc_timeout=ASK_TIMEOUT)).count:
                    return
                await asyncio.sleep(TICK_SECONDS)
        except RPCError as error:
            log.info("versions.not_awaited", status=error.status.name)

    async def hand_over(self, client: Client) -> None:
        """Move the open workflows of this version to the current one, if this was the last worker of its version."""
        try:
            pollers = await list_versions(client, self._queue)
            build = self.version.build
            if pollers.current in ("", build) or pollers.is_alive(build, besides=client.identity):
                return
            current = WorkerVersion(self.version.deployment, pollers.current)
            async for one in client.list_workflows(self._own_workflows, rpc_timeout=ASK_TIMEOUT):
                await self._move_if_open(client, one.id, current)
        except RPCError as error:
            log.info("versions.not_handed_over", status=error.status.name)

    async def _take_over(self, client: Client, pollers: VersionPollers) -> bool:
        """Move the abandoned workflows of other versions to this one; return whether others have open workflows."""
        query = f"{self._open_workflows} AND TemporalWorkerDeploymentVersion != '{self.version}'"
        others = [one.id async for one in client.list_workflows(query, rpc_timeout=ASK_TIMEOUT)]

        async def take_over(workflow_id: str) -> None:
            description = (await client.get_workflow_handle(workflow_id).describe()).raw_description
            info = description.workflow_execution_info.versioning_info
            build = info.deployment_version.build_id
            patience = ABANDONED_SECONDS if pollers.is_alive(build) else 0.0
            if build not in ("", self.version.build) and find_wait(description) > patience:
                await self._move_if_open(client, workflow_id, self.version)

        await gather_limited(MOVES_AT_ONCE, take_over, others)
        return bool(others)

    async def _move_if_open(self, client: Client, workflow_id: str, version: WorkerVersion) -> None:
        """Move a workflow to a version, unless it has ended meanwhile."""
        try:
            await move_workflow(client, workflow_id, version)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        else:
            log.warning("versions.moved", workflow=workflow_id, build=version.build)

    @property
    def _open_workflows(self) -> str:
        return f"TaskQueue = '{self._queue}' AND ExecutionStatus = 'Running'"

    @property
    def _own_workflows(self) -> str:
        return f"{self._open_workflows} AND TemporalWorkerDeploymentVersion = '{self.version}'"
