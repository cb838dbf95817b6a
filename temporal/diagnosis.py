"""Diagnoses Temporal: whether the server answers, the namespace can be used, and workers poll."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, GetSystemInfoRequest
from temporalio.client import Client

from maestro.domain.health import Diagnosis, DiagnosisLevel
from temporal.client import AWAY, check_namespace, connect, connection_warnings
from temporal.endpoint import Endpoint
from temporal.explanations import Cause, cause_of, trouble_of
from temporal.namespace import create_command, days_text, find_shortfall, mistyped_fix, mistyped_text

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
_KINDS = {
    WORKFLOWS: TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    ACTIVITIES: TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
}


@dataclass(frozen=True)
class Poller:
    """A worker that polled a queue; ``seen`` is the time since its last poll."""

    queue: str
    kind: str
    identity: str
    seen: timedelta


async def diagnose(endpoint: Endpoint, queues: Sequence[str]) -> Sequence[Diagnosis]:
    """Check server, namespace, search attributes and pollers of the queues, within about five seconds.

    Failures of the server raise no exception: checks that depend on a failed check are left out.
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
        found = f"{endpoint.namespace} keeps finished histories for {days_text(retention)}"
        namespace = Diagnosis(check=NAMESPACE, verdict=DiagnosisLevel.FINE, found=found)
    except AWAY as error:
        return [server, _broken_diagnosis(NAMESPACE, error, endpoint)]
    rest = await asyncio.gather(_diagnose_attributes(client, endpoint), _diagnose_queues(client, endpoint, queues))
    return [server, namespace, *rest]


async def _diagnose_server(client: Client, endpoint: Endpoint) -> Diagnosis:
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=ASK)
    protection = "in plain text" if endpoint.tls is None else "with TLS"
    found = f"server {info.server_version or 'of an unknown version'} at {endpoint.address}, {protection}"
    for note in connection_warnings(endpoint):
        return Diagnosis(check=SERVER, verdict=DiagnosisLevel.NOTE, found=found, fix=note)
    return Diagnosis(check=SERVER, verdict=DiagnosisLevel.FINE, found=found)


async def _diagnose_attributes(client: Client, endpoint: Endpoint) -> Diagnosis:
    level, found, fix = DiagnosisLevel.FINE, "all there", ""
    try:
        shortfall = await find_shortfall(client, endpoint.namespace)
    except AWAY as error:
        reason = "not allowed" if cause_of(error) is Cause.DENIED else trouble_of(error, endpoint).found
        level, found = DiagnosisLevel.NOTE, f"the attributes cannot be listed ({reason})"
        fix = f"if no message starts, have an administrator run `{create_command(endpoint.namespace)}`"
    else:
        if shortfall.mistyped:
            level, found = DiagnosisLevel.BROKEN, f"there is {mistyped_text(shortfall)}"
            fix = mistyped_fix(shortfall, endpoint.namespace)
        elif shortfall.missing:
            level, found = DiagnosisLevel.BROKEN, f"missing: {', '.join(shortfall.missing)}"
            fix = f"`maestro init` adds the missing ones, or `{create_command(endpoint.namespace, shortfall.missing)}`"
    return Diagnosis(check=ATTRIBUTES, verdict=level, found=found, fix=fix)


async def _diagnose_queues(client: Client, endpoint: Endpoint, queues: Sequence[str]) -> Diagnosis:
    requests = (pollers_of(client, endpoint.namespace, queue, kind) for queue in queues for kind in _KINDS)
    try:
        pollers = await asyncio.gather(*requests)
    except AWAY as error:
        reason = trouble_of(error, endpoint).found
        return Diagnosis(check=POLLERS, verdict=DiagnosisLevel.NOTE, found=f"the workers cannot be listed ({reason})")
    return diagnose_pollers(queues, list(chain.from_iterable(pollers)))


async def pollers_of(client: Client, namespace: str, queue: str, kind: str) -> list[Poller]:
    """Return the workers that polled a queue recently for this kind of work; raises one of ``AWAY``."""
    request = DescribeTaskQueueRequest(
        namespace=namespace, task_queue=TaskQueue(name=queue), task_queue_type=_KINDS[kind]
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=ASK)
    now = datetime.now(UTC)
    return [Poller(queue, kind, each.identity, now - each.last_access_time.ToDatetime(UTC)) for each in answer.pollers]


def diagnose_pollers(queues: Sequence[str], pollers: Sequence[Poller]) -> Diagnosis:
    """Diagnose the pollers of each queue; a queue without pollers is only a note, since its process may be stopped."""
    alive = [poller for poller in pollers if poller.seen <= POLLER_COUNTS]
    found = "; ".join(_queue_text(queue, [poller for poller in alive if poller.queue == queue]) for queue in queues)
    if {poller.queue for poller in alive} >= set(queues):
        return Diagnosis(check=POLLERS, verdict=DiagnosisLevel.FINE, found=found)
    fix = "start `maestro up`, or `maestro worker` and `maestro connect` where they are separate"
    return Diagnosis(check=POLLERS, verdict=DiagnosisLevel.NOTE, found=found, fix=fix)


def _queue_text(queue: str, alive: Sequence[Poller]) -> str:
    if not alive:
        return f"no worker polls {queue}"
    kinds = " and ".join(dict.fromkeys(poller.kind for poller in alive))
    ago = max(0, round(min(poller.seen for poller in alive).total_seconds()))
    return f"{queue}: {kinds}, last poll {ago} s ago"


def _broken_diagnosis(name: str, error: BaseException, endpoint: Endpoint) -> Diagnosis:
    trouble = trouble_of(error, endpoint)
    return Diagnosis(check=name, verdict=DiagnosisLevel.BROKEN, found=trouble.found, fix=trouble.fix)
