"""Prepares and diagnoses a Temporal namespace, whose search attributes hold only ids and fixed words."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType, TaskQueueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeTaskQueueRequest,
    GetSystemInfoRequest,
    RegisterNamespaceRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.errors import TemporalUnavailable
from maestro.domain.health import Diagnosis, DiagnosisLevel
from temporal.client import AWAY, check_namespace, connect, connection_warning
from temporal.endpoint import Cause, Endpoint, Trouble, connection_problem, explain_error, root_cause

SEARCH_ATTRIBUTES = ("Platform", "Kind", "Channel", "Agent", "Conversation", "Outcome")
"""The search attributes of workflows, all of type Keyword; the embedded server's SQLite store has room for ten."""

KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
PASSING = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.UNKNOWN,
    }
)
"""gRPC statuses of a temporary failure, which say nothing about the rights of this client.

A request whose connection breaks before the answer ends with ``UNKNOWN`` (``transport error``).
"""

_ATTRIBUTES_TIMEOUT = timedelta(seconds=2)

USABLE_SECONDS = 30.0
"""The longest wait until a whole server knows a new namespace or search attribute; servers need about ten seconds."""
LOOK_SECONDS = 0.2

_REQUEST_TIMEOUT = timedelta(seconds=5)
_NOT_YET = frozenset({RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.UNAVAILABLE})
_NOT_TOLD = frozenset({RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED})

SERVER = "Temporal"
NAMESPACE = "namespace"
ATTRIBUTES = "search attributes"
POLLERS = "pollers"

CONNECT_SECONDS = 2.5
ASK = timedelta(seconds=1)
"""The timeout of one request; together, the consecutive requests of a diagnosis end within five seconds."""

POLLER_COUNTS = timedelta(seconds=75)
"""How long after its last poll a worker counts as alive; a worker polls again after a minute at the latest."""

WORKFLOWS = "workflows"
ACTIVITIES = "activities"
_KINDS = {WORKFLOWS: TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, ACTIVITIES: TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY}


@dataclass(frozen=True)
class Shortfall:
    """The search attributes that a namespace lacks, and those that have another type than Keyword."""

    missing: tuple[str, ...]
    mistyped: Mapping[str, str]
    """The present type of each attribute with a wrong type, written as the program ``temporal`` writes it."""


async def find_missing_attributes(client: Client, namespace: str) -> Shortfall:
    """Return which search attributes are missing or have another type; raises the errors of the SDK."""
    listed = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=namespace), timeout=_ATTRIBUTES_TIMEOUT
    )
    known = listed.custom_attributes
    return Shortfall(
        missing=tuple(name for name in SEARCH_ATTRIBUTES if name not in known),
        mistyped={
            name: IndexedValueType.Name(known[name]).removeprefix("INDEXED_VALUE_TYPE_").title().replace("_", "")
            for name in SEARCH_ATTRIBUTES
            if name in known and known[name] != KEYWORD
        },
    )


async def ensure_search_attributes(client: Client, namespace: str) -> tuple[str, ...]:
    """Add the missing search attributes and return them.

    Raises ``TemporalUnavailable`` with the fix when the server refuses, ``RPCError`` when a retry may succeed.
    """
    try:
        difference = await find_missing_attributes(client, namespace)
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
        trouble = mistyped_problem(difference, namespace)
        raise TemporalUnavailable(
            f"Namespace {namespace} has {trouble.found}, and no message can be started: {trouble.fix}."
        )
    return difference.missing


async def _add_attributes(client: Client, namespace: str, names: tuple[str, ...]) -> None:
    """Add search attributes; a refusal because another process added them first counts as success."""
    request = AddSearchAttributesRequest(namespace=namespace, search_attributes=dict.fromkeys(names, KEYWORD))
    try:
        await client.operator_service.add_search_attributes(request, timeout=_ATTRIBUTES_TIMEOUT)
    except RPCError:
        if (await find_missing_attributes(client, namespace)).missing:
            raise


def create_command(namespace: str, names: tuple[str, ...] = SEARCH_ATTRIBUTES) -> str:
    """Return the command with which an administrator adds search attributes."""
    named = " ".join(f"--name {name}" for name in names)
    return f"temporal operator search-attribute create -n {namespace} {named} --type Keyword"


def mistyped_problem(difference: Shortfall, namespace: str) -> Trouble:
    """Return the problem of search attributes with another type than Keyword, and its fix."""
    each = ", ".join(f"{name} of type {kind}" for name, kind in difference.mistyped.items())
    named = " ".join(f"--name {name}" for name in difference.mistyped)
    remove = f"temporal operator search-attribute remove -n {namespace} {named} --yes"
    create = create_command(namespace, tuple(difference.mistyped))
    return Trouble(
        f"the search attribute {each} instead of Keyword",
        f"set temporal.namespace to a namespace of Maestro's own, or replace them with `{remove}` and `{create}`",
    )


async def prepare_namespace(endpoint: Endpoint, retention: timedelta) -> Sequence[str]:
    """Register the namespace and add missing search attributes; return a sentence for each change.

    ``retention`` is how long a new namespace keeps finished histories; most servers require a day at least. Raises
    ``TemporalUnavailable`` with the administrator's commands as the fix when Maestro lacks the rights.
    """
    try:
        client = await connect(endpoint)
        changes = await _prepare_namespace(client, endpoint, retention)
        added = await ensure_search_attributes(client, endpoint.namespace)
        if added:
            query = " AND ".join(f"{name} = 'none'" for name in SEARCH_ATTRIBUTES)
            await _retry_until_usable(lambda: _count_workflows(client, endpoint.namespace, query))
            changes.append(f"Added the search attributes {', '.join(added)} to namespace {endpoint.namespace}.")
    except AWAY as error:
        raise TemporalUnavailable(explain_error(error, endpoint)) from None
    return changes


async def _prepare_namespace(client: Client, endpoint: Endpoint, retention: timedelta) -> list[str]:
    changes = []
    try:
        await check_namespace(client, endpoint.namespace)
    except RPCError as error:
        if root_cause(error) is not Cause.NO_NAMESPACE:
            raise
        await _register_namespace(client, endpoint, retention)
        duration = duration_text(retention)
        changes = [f"Created namespace {endpoint.namespace}, which keeps finished histories for {duration}."]
    # An existing namespace is also checked, because another process may have created it just now.
    await _retry_until_usable(lambda: _require_namespace_known(client, endpoint.namespace))
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
        if error.status is not RPCStatusCode.ALREADY_EXISTS:  # Another process may have created it first.
            hours = max(1, round(retention.total_seconds() / 3600))
            raise TemporalUnavailable(
                f"Temporal at {endpoint.address} does not allow Maestro to create namespace {name} ({error.message}): "
                f"have an administrator run `temporal operator namespace create -n {name} --retention {hours}h` "
                f"and `{create_command(name)}`."
            ) from None


async def _require_namespace_known(client: Client, namespace: str) -> None:
    """Raise an error while a part of the server does not know the namespace yet."""
    await check_namespace(client, namespace)
    await find_missing_attributes(client, namespace)
    await _count_workflows(client, namespace)


async def _count_workflows(client: Client, namespace: str, query: str = "") -> None:
    """Raise an error while the server cannot search workflows, for example by a search attribute of the query."""
    request = CountWorkflowExecutionsRequest(namespace=namespace, query=query)
    await client.workflow_service.count_workflow_executions(request, timeout=_REQUEST_TIMEOUT)


async def _retry_until_usable(request: Callable[[], Awaitable[None]]) -> None:
    """Repeat a check until it succeeds; after ``USABLE_SECONDS``, raise the check's last error."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + USABLE_SECONDS
    while True:
        try:
            return await request()
        except RPCError as error:
            if error.status in _NOT_TOLD:
                return None  # Without the right to check, the namespace counts as usable.
            if error.status not in _NOT_YET or clock() > deadline:
                raise
        await asyncio.sleep(LOOK_SECONDS)


def duration_text(duration: timedelta) -> str:
    """Return a duration as a text, such as ``3 days`` or ``30 hours``."""
    hours = round(duration.total_seconds() / 3600)
    return f"{hours // 24} days" if hours > 24 and hours % 24 == 0 else f"{hours} hours"


@dataclass(frozen=True)
class Poller:
    """A worker that polled a task queue; ``seen`` is the time since the worker's last poll."""

    queue: str
    kind: str
    identity: str
    seen: timedelta


async def diagnose_temporal(endpoint: Endpoint, queues: Sequence[str]) -> Sequence[Diagnosis]:
    """Check server, namespace, search attributes and pollers of the queues, within about five seconds.

    Failures of the server raise no exception. After a failed check, the checks that depend on it are left out.
    """
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            client = await connect(endpoint)
            server = await _diagnose_server(client, endpoint)
    except AWAY as error:
        return [_broken_diagnosis(SERVER, error, endpoint)]
    try:
        async with asyncio.timeout(ASK.total_seconds()):
            described = await check_namespace(client, endpoint.namespace)
        retention = described.config.workflow_execution_retention_ttl.ToTimedelta()
        found = f"{endpoint.namespace} keeps finished histories for {duration_text(retention)}"
        namespace = Diagnosis(check=NAMESPACE, verdict=DiagnosisLevel.FINE, found=found)
    except AWAY as error:
        return [server, _broken_diagnosis(NAMESPACE, error, endpoint)]
    rest = await asyncio.gather(_diagnose_attributes(client, endpoint), _diagnose_queues(client, endpoint, queues))
    return [server, namespace, *rest]


async def _diagnose_server(client: Client, endpoint: Endpoint) -> Diagnosis:
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=ASK)
    protection = "in plain text" if endpoint.tls is None else "with TLS"
    found = f"server {info.server_version or 'of an unknown version'} at {endpoint.address}, {protection}"
    note = connection_warning(endpoint)
    return Diagnosis(check=SERVER, verdict=DiagnosisLevel.NOTE if note else DiagnosisLevel.FINE, found=found, fix=note)


async def _diagnose_attributes(client: Client, endpoint: Endpoint) -> Diagnosis:
    level, found, fix = DiagnosisLevel.FINE, "all there", ""
    try:
        shortfall = await find_missing_attributes(client, endpoint.namespace)
    except AWAY as error:
        reason = "not allowed" if root_cause(error) is Cause.DENIED else connection_problem(error, endpoint).found
        level, found = DiagnosisLevel.NOTE, f"the attributes cannot be listed ({reason})"
        fix = f"if no message starts, have an administrator run `{create_command(endpoint.namespace)}`"
    else:
        if shortfall.mistyped:
            trouble = mistyped_problem(shortfall, endpoint.namespace)
            level, found, fix = DiagnosisLevel.BROKEN, f"there is {trouble.found}", trouble.fix
        elif shortfall.missing:
            level, found = DiagnosisLevel.BROKEN, f"missing: {', '.join(shortfall.missing)}"
            fix = f"`maestro init` adds the missing ones, or `{create_command(endpoint.namespace, shortfall.missing)}`"
    return Diagnosis(check=ATTRIBUTES, verdict=level, found=found, fix=fix)


async def _diagnose_queues(client: Client, endpoint: Endpoint, queues: Sequence[str]) -> Diagnosis:
    requests = (list_pollers(client, endpoint.namespace, queue, kind) for queue in queues for kind in _KINDS)
    try:
        pollers = await asyncio.gather(*requests)
    except AWAY as error:
        reason = connection_problem(error, endpoint).found
        return Diagnosis(check=POLLERS, verdict=DiagnosisLevel.NOTE, found=f"the workers cannot be listed ({reason})")
    alive = [poller for poller in chain.from_iterable(pollers) if poller.seen <= POLLER_COUNTS]
    found = "; ".join(_queue_text(queue, [poller for poller in alive if poller.queue == queue]) for queue in queues)
    if {poller.queue for poller in alive} >= set(queues):
        return Diagnosis(check=POLLERS, verdict=DiagnosisLevel.FINE, found=found)
    # A queue without pollers is no error, because an operator may have stopped its process.
    fix = "start `maestro up`, or `maestro worker` and `maestro connect` where they are separate"
    return Diagnosis(check=POLLERS, verdict=DiagnosisLevel.NOTE, found=found, fix=fix)


async def list_pollers(client: Client, namespace: str, queue: str, kind: str) -> list[Poller]:
    """Return the workers that polled a queue recently for workflows or activities; raises one of ``AWAY``."""
    request = DescribeTaskQueueRequest(
        namespace=namespace, task_queue=TaskQueue(name=queue), task_queue_type=_KINDS[kind]
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=ASK)
    now = datetime.now(UTC)
    return [Poller(queue, kind, each.identity, now - each.last_access_time.ToDatetime(UTC)) for each in answer.pollers]


def _queue_text(queue: str, pollers: Sequence[Poller]) -> str:
    if not pollers:
        return f"no worker polls {queue}"
    kinds = " and ".join(dict.fromkeys(poller.kind for poller in pollers))
    ago = max(0, round(min(poller.seen for poller in pollers).total_seconds()))
    return f"{queue}: {kinds}, last poll {ago} s ago"


def _broken_diagnosis(name: str, error: BaseException, endpoint: Endpoint) -> Diagnosis:
    trouble = connection_problem(error, endpoint)
    return Diagnosis(check=name, verdict=DiagnosisLevel.BROKEN, found=trouble.found, fix=trouble.fix)
