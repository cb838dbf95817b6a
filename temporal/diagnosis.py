"""Diagnoses Temporal: whether the server answers, the namespace can be used, and workers poll."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, GetSystemInfoRequest
from temporalio.client import Client

from maestro.domain.health import Diagnosis, DiagnosisLevel
from temporal.client import AWAY, check, connect, notes
from temporal.endpoint import Endpoint
from temporal.explanations import Cause, cause_of, trouble_of
from temporal.namespace import create_command, lacking, mistyped_fix, mistyped_text, span

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
            server = await _server(client, endpoint)
    except AWAY as error:
        return [_broken(SERVER, error, endpoint)]
    try:
        async with asyncio.timeout(ASK.total_seconds()):
            described = await check(client, endpoint.namespace)
        kept = described.config.workflow_execution_retention_ttl.ToTimedelta()
        found = f"{endpoint.namespace} keeps finished histories for {span(kept)}"
        namespace = Diagnosis(check=NAMESPACE, verdict=DiagnosisLevel.FINE, found=found)
    except AWAY as error:
        return [server, _broken(NAMESPACE, error, endpoint)]
    rest = await asyncio.gather(_attributes(client, endpoint), _pollers(client, endpoint, queues))
    return [server, namespace, *rest]


async def _server(client: Client, endpoint: Endpoint) -> Diagnosis:
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=ASK)
    how = "in plain text" if endpoint.tls is None else "with TLS"
    found = f"server {info.server_version or 'of an unknown version'} at {endpoint.address}, {how}"
    for note in notes(endpoint):
        return Diagnosis(check=SERVER, verdict=DiagnosisLevel.NOTE, found=found, fix=note)
    return Diagnosis(check=SERVER, verdict=DiagnosisLevel.FINE, found=found)


async def _attributes(client: Client, endpoint: Endpoint) -> Diagnosis:
    try:
        found = await lacking(client, endpoint.namespace)
    except AWAY as error:
        why = "not allowed" if cause_of(error) is Cause.DENIED else trouble_of(error, endpoint).found
        return Diagnosis(
            check=ATTRIBUTES,
            verdict=DiagnosisLevel.NOTE,
            found=f"they cannot be listed ({why})",
            fix=f"if no message starts, have an administrator run `{create_command(endpoint.namespace)}`",
        )
    if found.mistyped:
        fix = mistyped_fix(found, endpoint.namespace)
        return Diagnosis(
            check=ATTRIBUTES, verdict=DiagnosisLevel.BROKEN, found=f"there is {mistyped_text(found)}", fix=fix
        )
    if found.missing:
        return Diagnosis(
            check=ATTRIBUTES,
            verdict=DiagnosisLevel.BROKEN,
            found=f"missing: {', '.join(found.missing)}",
            fix=f"`maestro init` adds them, or `{create_command(endpoint.namespace, found.missing)}`",
        )
    return Diagnosis(check=ATTRIBUTES, verdict=DiagnosisLevel.FINE, found="all there")


async def _pollers(client: Client, endpoint: Endpoint, queues: Sequence[str]) -> Diagnosis:
    asked = (pollers_of(client, endpoint.namespace, queue, kind) for queue in queues for kind in _KINDS)
    try:
        found = await asyncio.gather(*asked)
    except AWAY as error:
        why = trouble_of(error, endpoint).found
        return Diagnosis(check=POLLERS, verdict=DiagnosisLevel.NOTE, found=f"nobody says who works ({why})")
    return polled(queues, [poller for some in found for poller in some])


async def pollers_of(client: Client, namespace: str, queue: str, kind: str) -> list[Poller]:
    """Return the workers that polled a queue recently for this kind of work; raises one of ``AWAY``."""
    request = DescribeTaskQueueRequest(
        namespace=namespace, task_queue=TaskQueue(name=queue), task_queue_type=_KINDS[kind]
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=ASK)
    now = datetime.now(UTC)
    return [Poller(queue, kind, one.identity, now - one.last_access_time.ToDatetime(UTC)) for one in answer.pollers]


def polled(queues: Sequence[str], pollers: Sequence[Poller]) -> Diagnosis:
    """Diagnose the pollers of each queue; a queue without pollers is only a note, since its process may be stopped."""
    alive = [poller for poller in pollers if poller.seen <= POLLER_COUNTS]
    found = "; ".join(_work_on(queue, [one for one in alive if one.queue == queue]) for queue in queues)
    if {poller.queue for poller in alive} >= set(queues):
        return Diagnosis(check=POLLERS, verdict=DiagnosisLevel.FINE, found=found)
    fix = "start `maestro up`, or `maestro worker` and `maestro connect` where they are separate"
    return Diagnosis(check=POLLERS, verdict=DiagnosisLevel.NOTE, found=found, fix=fix)


def _work_on(queue: str, alive: Sequence[Poller]) -> str:
    if not alive:
        return f"nobody works on {queue}"
    kinds = " and ".join(dict.fromkeys(poller.kind for poller in alive))
    ago = max(0, round(min(poller.seen for poller in alive).total_seconds()))
    return f"{queue}: {kinds}, asked for work {ago} s ago"


def _broken(name: str, error: BaseException, endpoint: Endpoint) -> Diagnosis:
    what = trouble_of(error, endpoint)
    return Diagnosis(check=name, verdict=DiagnosisLevel.BROKEN, found=what.found, fix=what.fix)
