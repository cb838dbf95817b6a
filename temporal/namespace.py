"""Prepares a Temporal namespace: registers it, and adds search attributes, which hold ids and fixed words only."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import CountWorkflowExecutionsRequest, RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.errors import TemporalUnavailable
from temporal.client import AWAY, check_namespace, connect
from temporal.endpoint import Endpoint
from temporal.explanations import Cause, cause_of, explain

SEARCH_ATTRIBUTES = ("Platform", "Kind", "Channel", "Agent", "Conversation", "Outcome")
"""The search attributes of workflows, all of type Keyword; the embedded server's SQLite store has room for ten."""

KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
PASSING = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.CANCELLED,
    }
)
"""Statuses of a temporary failure, which say nothing about the rights of this client."""

_ATTRIBUTES_TIMEOUT = timedelta(seconds=2)

USABLE_SECONDS = 30.0
"""How long a new namespace or search attribute may take to be known everywhere; real servers need about ten."""
LOOK_SECONDS = 0.2

_REQUEST_TIMEOUT = timedelta(seconds=5)
_NOT_YET = frozenset({RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.UNAVAILABLE})
_NOT_TOLD = frozenset({RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED})


@dataclass(frozen=True)
class Shortfall:
    """The search attributes that a namespace lacks, and those that have another type than Keyword."""

    missing: tuple[str, ...]
    mistyped: Mapping[str, str]
    """The present type of each attribute with a wrong type, as the program ``temporal`` writes types."""


def compare_attributes(known: Mapping[str, IndexedValueType.ValueType]) -> Shortfall:
    """Compare the search attributes of a namespace with those that Maestro needs."""
    return Shortfall(
        missing=tuple(name for name in SEARCH_ATTRIBUTES if name not in known),
        mistyped={
            name: IndexedValueType.Name(known[name]).removeprefix("INDEXED_VALUE_TYPE_").title().replace("_", "")
            for name in SEARCH_ATTRIBUTES
            if known.get(name, KEYWORD) != KEYWORD
        },
    )


async def find_shortfall(client: Client, namespace: str) -> Shortfall:
    """Return which search attributes are missing or have another type; raises the errors of the SDK."""
    known = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=namespace), timeout=_ATTRIBUTES_TIMEOUT
    )
    return compare_attributes(known.custom_attributes)


async def ensure_search_attributes(client: Client, namespace: str) -> tuple[str, ...]:
    """Add the missing search attributes and return them.

    Raises ``TemporalUnavailable`` with the fix when the server refuses, ``RPCError`` when a retry may succeed.
    """
    try:
        difference = await find_shortfall(client, namespace)
        if difference.missing:
            await _add_attributes(client, namespace, difference.missing)
    except RPCError as error:
        if error.status in PASSING:
            raise
        raise TemporalUnavailable(
            f"Temporal refused to list or add its search attributes ({error}). Without them no message can be started: "
            f"have an administrator run `{create_command(namespace)}`."
        ) from None
    if difference.mistyped:
        raise TemporalUnavailable(
            f"Namespace {namespace} has {mistyped_text(difference)}, and no message can be started: "
            f"{mistyped_fix(difference, namespace)}."
        )
    return difference.missing


async def _add_attributes(client: Client, namespace: str, names: tuple[str, ...]) -> None:
    """Add search attributes; a refusal because another process added them first counts as success."""
    request = AddSearchAttributesRequest(namespace=namespace, search_attributes=dict.fromkeys(names, KEYWORD))
    try:
        await client.operator_service.add_search_attributes(request, timeout=_ATTRIBUTES_TIMEOUT)
    except RPCError:
        if (await find_shortfall(client, namespace)).missing:
            raise


def create_command(namespace: str, names: tuple[str, ...] = SEARCH_ATTRIBUTES) -> str:
    """Return the command with which an administrator adds search attributes."""
    named = " ".join(f"--name {name}" for name in names)
    return f"temporal operator search-attribute create -n {namespace} {named} --type Keyword"


def mistyped_text(difference: Shortfall) -> str:
    """Return a text that names the attributes of another type."""
    each = ", ".join(f"{name} of type {kind}" for name, kind in difference.mistyped.items())
    return f"the search attribute {each} instead of Keyword"


def mistyped_fix(difference: Shortfall, namespace: str) -> str:
    """Return the text that says how to fix attributes of another type."""
    names = tuple(difference.mistyped)
    named = " ".join(f"--name {name}" for name in names)
    remove = f"temporal operator search-attribute remove -n {namespace} {named} --yes"
    return (
        "set temporal.namespace to a namespace of Maestro's own, or replace them with "
        f"`{remove}` and `{create_command(namespace, names)}`"
    )


async def prepare(endpoint: Endpoint, retention: timedelta) -> Sequence[str]:
    """Register the namespace and add missing search attributes; return a sentence for each change.

    ``retention`` is how long a new namespace keeps finished histories; most servers require a day at least. Raises
    ``TemporalUnavailable`` with the administrator's commands as the fix when Maestro lacks the rights.
    """
    try:
        client = await connect(endpoint)
        changes = await _prepare_namespace(client, endpoint, retention)
        added = await ensure_search_attributes(client, endpoint.namespace)
        if added:
            await _retry_until_usable(lambda: _require_searchable(client, endpoint.namespace))
            changes.append(f"Added the search attributes {', '.join(added)} to namespace {endpoint.namespace}.")
    except AWAY as error:
        raise TemporalUnavailable(explain(error, endpoint)) from None
    return changes


async def _prepare_namespace(client: Client, endpoint: Endpoint, retention: timedelta) -> list[str]:
    changes = []
    try:
        await check_namespace(client, endpoint.namespace)
    except RPCError as error:
        if cause_of(error) is not Cause.NO_NAMESPACE:
            raise
        await _register_namespace(client, endpoint, retention)
        duration = days_text(retention)
        changes = [f"Created namespace {endpoint.namespace}, which keeps finished histories for {duration}."]
    # An existing namespace is checked too: another process may have created it a moment ago.
    await _retry_until_usable(lambda: _require_known(client, endpoint.namespace))
    return changes


async def _register_namespace(client: Client, endpoint: Endpoint, retention: timedelta) -> None:
    name, period = endpoint.namespace, Duration()
    period.FromTimedelta(retention)
    request = RegisterNamespaceRequest(
        namespace=name, description="The jobs of Maestro", workflow_execution_retention_period=period
    )
    try:
        await client.workflow_service.register_namespace(request, timeout=_REQUEST_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:  # else another process created the namespace first
            hours = max(1, round(retention.total_seconds() / 3600))
            raise TemporalUnavailable(
                f"Temporal at {endpoint.address} does not allow Maestro to create namespace {name} ({error.message}): "
                f"have an administrator run `temporal operator namespace create -n {name} --retention {hours}h` "
                f"and `{create_command(name)}`."
            ) from None


async def _require_known(client: Client, namespace: str) -> None:
    """Raise an error while a part of the server does not know the namespace yet."""
    await check_namespace(client, namespace)
    await find_shortfall(client, namespace)
    await client.workflow_service.count_workflow_executions(
        CountWorkflowExecutionsRequest(namespace=namespace), timeout=_REQUEST_TIMEOUT
    )


async def _require_searchable(client: Client, namespace: str) -> None:
    """Raise an error while the search attributes cannot be used yet."""
    query = " AND ".join(f"{name} = 'none'" for name in SEARCH_ATTRIBUTES)
    await client.workflow_service.count_workflow_executions(
        CountWorkflowExecutionsRequest(namespace=namespace, query=query), timeout=_REQUEST_TIMEOUT
    )


async def _retry_until_usable(ask: Callable[[], Awaitable[None]]) -> None:
    """Repeat a check until it succeeds; after ``USABLE_SECONDS``, raise the check's last error."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + USABLE_SECONDS
    while True:
        try:
            return await ask()
        except RPCError as error:
            if error.status in _NOT_TOLD:
                return None  # without the right to check, the namespace counts as usable
            if error.status not in _NOT_YET or clock() > deadline:
                raise
        await asyncio.sleep(LOOK_SECONDS)


def days_text(duration: timedelta) -> str:
    """Return a duration as words in hours or days."""
    hours = round(duration.total_seconds() / 3600)
    return f"{hours // 24} days" if hours > 24 and hours % 24 == 0 else f"{hours} hours"
