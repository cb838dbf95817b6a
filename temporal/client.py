"""Connects to Temporal, patiently, with the converter that keeps text out of histories, and watches the connection."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode

from temporal.endpoint import Endpoint, Tls
from temporal.explanations import Cause, cause_of, explain
from temporal.failures import SafeFailureConverter

__all__ = [
    "AWAY",
    "DATA_CONVERTER",
    "Client",
    "Endpoint",
    "Tls",
    "check",
    "connect",
    "connect_patiently",
    "connect_soon",
    "reach",
    "trouble",
    "watch",
]

FIRST_WAIT = 0.2
LONGEST_WAIT = 5.0
CONNECT_SECONDS = 10.0
WATCH_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 1.0
ASK_TIMEOUT = timedelta(seconds=5)
NOBODY = "nobody"
"""The id of a workflow that never exists."""

AWAY = (RPCError, RuntimeError, OSError)
"""What the SDK raises when Temporal cannot be worked with; a first connection that fails is a plain RuntimeError."""

DATA_CONVERTER = replace(pydantic_data_converter, failure_converter_class=SafeFailureConverter)

Report = Callable[[str], None]


async def connect(endpoint: Endpoint) -> Client:
    """Connect once; raises one of ``AWAY``. Neither the namespace nor what we may do there has been asked for."""
    connecting = Client.connect(
        endpoint.address,
        namespace=endpoint.namespace,
        tls=endpoint.tls.config() if endpoint.tls is not None else False,
        api_key=endpoint.api_key or None,
        data_converter=DATA_CONVERTER,
    )
    return await asyncio.wait_for(connecting, CONNECT_SECONDS)


async def connect_soon(endpoint: Endpoint, seconds: float) -> Client | None:
    """Connect within a few seconds; None when Temporal is not there."""
    try:
        return await asyncio.wait_for(connect(endpoint), seconds)
    except AWAY:
        return None


async def reach(endpoint: Endpoint) -> Client:
    """Connect, and see that we can work in the namespace; raises one of ``AWAY``."""
    client = await connect(endpoint)
    await check(client, endpoint.namespace)
    return client


async def check(client: Client, namespace: str) -> None:
    """Raise one of ``AWAY`` unless the namespace is there and lets us in. It asks in ways that no cloud bills.

    Connecting does not tell: it asks for the server's version alone, which servers answer without looking at who asks.
    """
    try:
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=namespace), timeout=ASK_TIMEOUT
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.PERMISSION_DENIED:
            raise
        await _look_for_nobody(client, namespace)


async def _look_for_nobody(client: Client, namespace: str) -> None:
    """Raise unless we may see workflows: who may work in a namespace need not be allowed to describe it."""
    request = DescribeWorkflowExecutionRequest(namespace=namespace, execution=WorkflowExecution(workflow_id=NOBODY))
    try:
        await client.workflow_service.describe_workflow_execution(request, timeout=ASK_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND or "amespace" in error.message:
            raise


async def connect_patiently(endpoint: Endpoint, report: Report) -> Client:
    """Connect, trying again for as long as it takes, and tell each change of the reason once."""
    for line in notes(endpoint):
        report(line)
    wait = FIRST_WAIT
    told = ""
    while True:
        try:
            client = await reach(endpoint)
        except AWAY as error:
            told = _tell_change(explain(error, endpoint), told, report)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)
            continue
        if told:
            report(f"Temporal at {endpoint.address} is reachable.")
        return client


async def watch(client: Client, endpoint: Endpoint, report: Report, seconds: float = WATCH_SECONDS) -> None:
    """Look every few ``seconds`` until cancelled, and tell once that Temporal is away or refuses us, and that it works.

    A trouble that a second look does not find again is not worth a line.
    """
    told = ""
    while True:
        await asyncio.sleep(seconds)
        seen = await trouble(client, endpoint)
        if seen and seen != told:
            await asyncio.sleep(min(seconds, LOOK_AGAIN_SECONDS))
            seen = await trouble(client, endpoint)
        if seen:
            told = _tell_change(seen, told, report)
        elif told:
            report(f"Temporal at {endpoint.address} works again.")
            told = ""


async def trouble(client: Client, endpoint: Endpoint) -> str:
    """Return why Temporal cannot be worked with, as a sentence with the fix, or nothing when it can."""
    try:
        await check(client, endpoint.namespace)
    except AWAY as error:
        return await _reason(error, endpoint)
    return ""


async def _reason(error: BaseException, endpoint: Endpoint) -> str:
    """Explain what a connected client met: of a lost connection only a new one says why."""
    if cause_of(error) in {Cause.CUT_OFF, Cause.NOBODY_LISTENS, Cause.UNKNOWN}:
        try:
            await reach(endpoint)
        except AWAY as closer:
            return explain(closer, endpoint)
    return explain(error, endpoint)


def notes(endpoint: Endpoint) -> tuple[str, ...]:
    """Return what people should know of a connection that works all the same."""
    local = endpoint.host in {"localhost", "127.0.0.1", "[::1]"}
    if not endpoint.api_key or endpoint.tls is not None or local:
        return ()
    return (
        f"The API key of temporal.apiKey goes to {endpoint.address} in plain text: set temporal.tls to true "
        "(Temporal Cloud takes no key without it).",
    )


def _tell_change(seen: str, told: str, report: Report) -> str:
    if seen != told:
        report(f"{seen} Trying again until it works.")
    return seen
