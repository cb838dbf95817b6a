"""Connects to Temporal with unlimited retries, watches the connection, and keeps users' texts out of histories."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeNamespaceResponse
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.service import RPCError, ServiceClient

from temporal.attempts import SafeFailureConverter
from temporal.codec import EncryptedFailureConverter, EncryptionCodec
from temporal.endpoint import Cause, Endpoint, explain_error, root_cause
from temporal.sdk import ReferencePayloadConverter

LONGEST_WAIT = 5.0
CONNECT_SECONDS = 10.0
ASK_TIMEOUT = timedelta(seconds=5)

AWAY = (RPCError, RuntimeError, OSError)
"""Errors that the SDK raises when Temporal cannot be used; a failed first connection raises a plain RuntimeError."""

DATA_CONVERTER = replace(
    pydantic_data_converter,
    payload_converter_class=ReferencePayloadConverter,
    failure_converter_class=SafeFailureConverter,
)
"""The converter without encryption; the SDK then does not visit the payloads."""

Report = Callable[[str], None]


def data_converter(endpoint: Endpoint) -> DataConverter:
    """Return the converter of payloads, which encrypts them where the endpoint has keys."""
    if not endpoint.codec_keys:
        return DATA_CONVERTER
    return replace(
        DATA_CONVERTER,
        payload_codec=EncryptionCodec(endpoint.codec_keys),
        failure_converter_class=EncryptedFailureConverter,
    )


async def connect(endpoint: Endpoint) -> Client:
    """Connect to Temporal once, without a check of the namespace or its rights; raises one of ``AWAY``."""
    async with asyncio.timeout(CONNECT_SECONDS):
        return await Client.connect(
            endpoint.address,
            namespace=endpoint.namespace,
            tls=endpoint.tls.build_config() if endpoint.tls is not None else False,
            api_key=endpoint.api_key or None,
            data_converter=data_converter(endpoint),
        )


async def connect_within(endpoint: Endpoint, seconds: float) -> Client | None:
    """Connect to Temporal within ``seconds``; return None when Temporal cannot be reached in that time."""
    try:
        async with asyncio.timeout(seconds):
            return await connect(endpoint)
    except AWAY:
        return None


async def connect_and_check(endpoint: Endpoint) -> Client:
    """Connect to Temporal, and check that the namespace can be used; raises one of ``AWAY``."""
    client = await connect(endpoint)
    await check_namespace(client, endpoint.namespace)
    return client


async def check_namespace(client: Client, namespace: str) -> DescribeNamespaceResponse:
    """Return the description of the namespace; raises one of ``AWAY`` if the namespace cannot be used.

    A connection alone proves little, because servers accept it without authentication. The right to describe the
    namespace proves more: without it, the SDK's worker does not start. Temporal Cloud does not bill this request.
    """
    return await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=namespace), timeout=ASK_TIMEOUT
    )


async def reconnect(client: Client) -> Client:
    """Open another connection with the same settings and check the namespace; raises one of ``AWAY``.

    After Temporal has refused a worker at its start, the same connection accepts no further worker for that queue.
    """
    config = client.config()
    config["service_client"] = await ServiceClient.connect(client.service_client.config)
    fresh = Client(**config)
    await check_namespace(fresh, fresh.namespace)
    return fresh


async def connect_with_retries(endpoint: Endpoint, report: Report) -> Client:
    """Connect to Temporal, retrying without a limit; a reason for failures is reported once until it changes."""
    if warning := connection_warning(endpoint):
        report(warning)
    wait = 0.2
    reported = ""
    while True:
        try:
            client = await connect_and_check(endpoint)
        except AWAY as error:
            reported = _report_change(explain_error(error, endpoint), reported, report)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)
            continue
        if reported:
            report(f"Temporal at {endpoint.address} is reachable.")
        return client


async def watch_connection(client: Client, endpoint: Endpoint, report: Report, seconds: float = 5.0) -> None:
    """Check the connection every few ``seconds`` until cancelled; report an outage once, and its end once.

    A problem is reported only if a second check confirms it.
    """
    reported = ""
    while True:
        await asyncio.sleep(seconds)
        problem = await find_connection_problem(client, endpoint)
        if problem and problem != reported:
            await asyncio.sleep(min(seconds, 1.0))
            problem = await find_connection_problem(client, endpoint)
        if problem:
            reported = _report_change(problem, reported, report)
        elif reported:
            report(f"Temporal at {endpoint.address} works again.")
            reported = ""


async def find_connection_problem(client: Client, endpoint: Endpoint) -> str:
    """Return a sentence that says why Temporal cannot be used and how to fix it; empty when Temporal works."""
    try:
        await check_namespace(client, endpoint.namespace)
    except AWAY as error:
        # An error of an open connection does not name its cause, so the cause comes from a new connection.
        if root_cause(error) in {Cause.CUT_OFF, Cause.NOBODY_LISTENS, Cause.UNKNOWN}:
            try:
                await connect_and_check(endpoint)
            except AWAY as second:
                return explain_error(second, endpoint)
        return explain_error(error, endpoint)
    return ""


def connection_warning(endpoint: Endpoint) -> str:
    """Return a warning if a working connection sends the API key in plain text; else an empty text."""
    local = endpoint.host in {"localhost", "127.0.0.1", "[::1]"}
    if not endpoint.api_key or endpoint.tls is not None or local:
        return ""
    return (
        f"The API key of temporal.apiKey goes to {endpoint.address} in plain text: set temporal.tls to true "
        "(Temporal Cloud accepts no key without TLS)."
    )


def _report_change(problem: str, reported: str, report: Report) -> str:
    if problem != reported:
        report(f"{problem} Trying again until Temporal works.")
    return problem
