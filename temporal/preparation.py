"""Prepares a Temporal server for Maestro: its namespace and its search attributes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import CountWorkflowExecutionsRequest, RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.errors import TemporalUnavailable
from temporal.client import AWAY, Endpoint, check, connect
from temporal.explanations import Cause, cause_of, explain
from temporal.search_attributes import SEARCH_ATTRIBUTES, create_command, ensure_search_attributes, lacking

USABLE_SECONDS = 30.0
"""How long a new namespace or search attribute may take to be known everywhere; real servers need about ten."""
LOOK_SECONDS = 0.2

_PATIENCE = timedelta(seconds=5)
_NOT_YET = frozenset({RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.UNAVAILABLE})
_NOT_TOLD = frozenset({RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED})


async def prepare(endpoint: Endpoint, retention: timedelta) -> Sequence[str]:
    """Register the namespace and add the search attributes where they are missing; return a sentence per thing done.

    ``retention`` is how long a new namespace keeps finished histories, at least a day on most servers. Raises
    ``TemporalUnavailable`` with the fix, which is the administrator's commands when we may not do this ourselves.
    """
    try:
        client = await connect(endpoint)
        done = await _prepare_namespace(client, endpoint, retention)
        return [*done, *await _prepare_attributes(client, endpoint)]
    except AWAY as error:
        raise TemporalUnavailable(explain(error, endpoint)) from None


async def _prepare_namespace(client: Client, endpoint: Endpoint, retention: timedelta) -> list[str]:
    try:
        await check(client, endpoint.namespace)
    except RPCError as error:
        if cause_of(error) is not Cause.NO_NAMESPACE:
            raise
    else:
        await _until_usable(lambda: _known(client, endpoint.namespace))  # somebody else may just have created it
        return []
    await _register(client, endpoint, retention)
    await _until_usable(lambda: _known(client, endpoint.namespace))
    return [f"Created namespace {endpoint.namespace}, which keeps finished histories for {span(retention)}."]


async def _register(client: Client, endpoint: Endpoint, retention: timedelta) -> None:
    kept = Duration()
    kept.FromTimedelta(retention)
    request = RegisterNamespaceRequest(
        namespace=endpoint.namespace,
        description="The jobs of Maestro",
        workflow_execution_retention_period=kept,
    )
    try:
        await client.workflow_service.register_namespace(request, timeout=_PATIENCE)
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:  # somebody else was quicker
            raise TemporalUnavailable(_refused(endpoint, retention, error)) from None


def _refused(endpoint: Endpoint, retention: timedelta, error: RPCError) -> str:
    hours = max(1, round(retention.total_seconds() / 3600))
    return (
        f"Temporal at {endpoint.address} did not let us create namespace {endpoint.namespace} ({error.message}): "
        f"have an administrator run `temporal operator namespace create -n {endpoint.namespace} --retention {hours}h` "
        f"and `{create_command(endpoint.namespace)}`."
    )


async def _prepare_attributes(client: Client, endpoint: Endpoint) -> list[str]:
    added = await ensure_search_attributes(client, endpoint.namespace)
    if not added:
        return []
    await _until_usable(lambda: _searched(client, endpoint.namespace))
    return [f"Added the search attributes {', '.join(added)} to namespace {endpoint.namespace}."]


async def _known(client: Client, namespace: str) -> None:
    """Raise while some part of the server does not know the namespace yet."""
    await check(client, namespace)
    await lacking(client, namespace)
    await client.workflow_service.count_workflow_executions(
        CountWorkflowExecutionsRequest(namespace=namespace), timeout=_PATIENCE
    )


async def _searched(client: Client, namespace: str) -> None:
    """Raise while the search attributes cannot be used yet."""
    query = " AND ".join(f"{name} = 'none'" for name in SEARCH_ATTRIBUTES)
    await client.workflow_service.count_workflow_executions(
        CountWorkflowExecutionsRequest(namespace=namespace, query=query), timeout=_PATIENCE
    )


async def _until_usable(ask: Callable[[], Awaitable[None]]) -> None:
    """Return when the question is answered; raises what it raised last if that takes too long."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + USABLE_SECONDS
    while True:
        try:
            return await ask()
        except RPCError as error:
            if error.status in _NOT_TOLD:
                return None  # who may not look has to believe
            if error.status not in _NOT_YET or clock() > deadline:
                raise
        await asyncio.sleep(LOOK_SECONDS)


def span(kept: timedelta) -> str:
    """Return a time of hours or days in words."""
    hours = round(kept.total_seconds() / 3600)
    return f"{hours // 24} days" if hours > 24 and hours % 24 == 0 else f"{hours} hours"
