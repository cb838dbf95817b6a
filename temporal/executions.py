"""The open workflows and the schedules of one installation in Temporal, for restores and consistency checks."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.errors import TemporalUnavailable
from maestro.supervision import gather_limited
from temporal.client import AWAY, connect_and_check
from temporal.endpoint import Endpoint, explain_error
from temporal.schedules import schedule_id

AT_ONCE = 20
ROUNDS = 5
"""The most rounds of terminating workflows: a list is a little late, and a schedule may start one meanwhile."""

GONE = "gone"
"""The state of a workflow that Temporal does not know."""


@dataclass(frozen=True)
class OpenWorkflow:
    """An open workflow; ``kind`` is the name of its workflow type."""

    id: str
    run_id: str
    kind: str


@dataclass(frozen=True)
class InstallationWorkflows:
    """The open workflows of an installation, and the ids of its schedules in Temporal."""

    open: tuple[OpenWorkflow, ...]
    schedules: frozenset[str]


async def check_endpoint(endpoint: Endpoint) -> None:
    """Raise ``TemporalUnavailable`` with the fix if Temporal cannot be used."""
    await _connect(endpoint)


async def read_workflows(endpoint: Endpoint, main_queue: str) -> InstallationWorkflows:
    """Return what Temporal has of an installation, which its main task queue identifies in a shared namespace.

    Raises ``TemporalUnavailable``.
    """
    client = await _connect(endpoint)
    try:
        prefixes = tuple(schedule_id(main_queue, kind) for kind in ("heartbeat-", "cron-"))
        listed = await client.list_schedules(page_size=1000)
        schedules = frozenset([entry.id async for entry in listed if entry.id.startswith(prefixes)])
        return InstallationWorkflows(tuple(await _list_open_workflows(client, main_queue)), schedules)
    except AWAY as error:
        raise TemporalUnavailable(explain_error(error, endpoint)) from None


async def find_closed_workflows(endpoint: Endpoint, ids: Collection[str]) -> Mapping[str, str]:
    """Return those of these workflows that are not open, each with its state; raises ``TemporalUnavailable``."""
    client = await _connect(endpoint)
    try:
        states = await gather_limited(AT_ONCE, partial(_read_state, client), list(ids))
    except AWAY as error:
        raise TemporalUnavailable(explain_error(error, endpoint)) from None
    return {workflow_id: state for workflow_id, state in zip(ids, states, strict=True) if state}


async def terminate_workflows(endpoint: Endpoint, main_queue: str, reason: str) -> int:
    """Terminate all open workflows of an installation; return their number. Raises ``TemporalUnavailable``."""
    client, ended = await _connect(endpoint), set[str]()
    try:
        for _ in range(ROUNDS):
            found = [each for each in await _list_open_workflows(client, main_queue) if each.run_id not in ended]
            if not found:
                break
            await gather_limited(AT_ONCE, partial(_terminate, client, reason), found)
            ended.update(workflow.run_id for workflow in found)
    except AWAY as error:
        raise TemporalUnavailable(explain_error(error, endpoint)) from None
    return len(ended)


async def _connect(endpoint: Endpoint) -> Client:
    try:
        return await connect_and_check(endpoint)
    except AWAY as error:
        raise TemporalUnavailable(explain_error(error, endpoint)) from None


async def _list_open_workflows(client: Client, main_queue: str) -> list[OpenWorkflow]:
    query = f"TaskQueue = '{main_queue}' AND ExecutionStatus = 'Running'"
    listed = client.list_workflows(query, page_size=1000)
    return [OpenWorkflow(entry.id, entry.run_id, entry.workflow_type) async for entry in listed]


async def _terminate(client: Client, reason: str, workflow: OpenWorkflow) -> None:
    try:
        await client.get_workflow_handle(workflow.id, run_id=workflow.run_id).terminate(reason)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended by itself
            raise


async def _read_state(client: Client, workflow_id: str) -> str:
    """Return the state of a workflow that is not open, empty for an open one."""
    try:
        status = (await client.get_workflow_handle(workflow_id).describe()).status
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return GONE
    return "" if status in (None, WorkflowExecutionStatus.RUNNING) else str(status.name).lower()
