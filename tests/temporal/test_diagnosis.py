"""The diagnosis of a Temporal server and its preparation, over the real wire."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio import activity
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, RemoveSearchAttributesRequest
from temporalio.worker import Worker

from maestro.domain.errors import TemporalUnavailable
from maestro.domain.health import Diagnosis, DiagnosisLevel
from temporal.client import connect
from temporal.endpoint import Endpoint, Tls
from temporal.namespace import SEARCH_ATTRIBUTES, diagnose_temporal, ensure_search_attributes, prepare_namespace
from tests.support.ports import free_port
from tests.support.temporal_gate import key_gate, port_of, temporal_server, tls_gate

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("diagnosis")]

KEY = "the-right-key"
THREE_DAYS = timedelta(days=3)
QUEUES = ("maestro", "maestro-llm")
CREATE_ALL = " ".join(f"--name {name}" for name in SEARCH_ATTRIBUTES)

numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    """Give the port of a real Temporal server, in plain text."""
    async with temporal_server(tmp_path_factory.mktemp("temporal")) as server:
        yield port_of(server)


@pytest.fixture
def fresh(port: int) -> Endpoint:
    """Give an endpoint whose namespace does not exist yet."""
    return Endpoint(f"127.0.0.1:{port}", f"namespace-{next(numbers)}")


def named(checks: Sequence[Diagnosis]) -> dict[str, Diagnosis]:
    """Return the checks by their names."""
    return {check.check: check for check in checks}


async def broken(endpoint: Endpoint) -> Diagnosis:
    """Diagnose a server with one trouble, and return that trouble, which ends the list."""
    *fine, last = await diagnose_temporal(endpoint, QUEUES)
    assert all(check.verdict is DiagnosisLevel.FINE for check in fine)
    assert last.verdict is DiagnosisLevel.BROKEN
    return last


@activity.defn
async def nothing() -> None:
    """Do nothing; it is there so that a worker has something to offer."""


async def test_a_server_where_all_is_well_and_somebody_works(port: int) -> None:
    endpoint = Endpoint(f"127.0.0.1:{port}", "default")
    client = await connect(endpoint)
    async with asyncio.timeout(30), Worker(client, task_queue="worked-on", activities=[nothing]):
        # Nothing tells us when the server has heard a worker ask, so we ask the server until it has.
        while "no worker" in named(checks := await diagnose_temporal(endpoint, ["worked-on"]))["pollers"].found:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert [check.check for check in checks] == ["Temporal", "namespace", "search attributes", "pollers"]
    assert {check.verdict for check in checks} == {DiagnosisLevel.FINE}
    assert all(check.fix == "" for check in checks)
    found = {name: check.found for name, check in named(checks).items()}
    assert found["Temporal"].startswith("server 1.")
    assert found["Temporal"].endswith(f"at {endpoint.address}, in plain text")
    assert found["namespace"] == "default keeps finished histories for 24 hours"
    assert found["search attributes"] == "all there"
    assert found["pollers"].startswith("worked-on: activities, last poll ")


async def test_a_queue_that_nobody_works_on_is_a_note(port: int) -> None:
    checks = named(await diagnose_temporal(Endpoint(f"127.0.0.1:{port}", "default"), QUEUES))
    assert checks["pollers"].verdict is DiagnosisLevel.NOTE
    assert checks["pollers"].found == "no worker polls maestro; no worker polls maestro-llm"
    assert "start `maestro up`, or `maestro worker`" in checks["pollers"].fix


async def test_a_server_that_is_not_there() -> None:
    found = await broken(Endpoint(f"127.0.0.1:{free_port()}", "default"))
    assert found.check == "Temporal"
    assert found.found.startswith("Nothing listens at")
    assert "correct temporal.address" in found.fix


async def test_a_server_that_never_says_anything_does_not_hold_up_the_diagnosis() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = await broken(Endpoint(f"127.0.0.1:{listener.getsockname()[1]}", "default"))
    assert found.found.startswith("Nothing answers at")


async def test_a_namespace_that_is_missing(fresh: Endpoint) -> None:
    found = await broken(fresh)
    assert found.check == "namespace"
    assert f"has no namespace '{fresh.namespace}'" in found.found
    assert "`maestro init`" in found.fix


async def test_a_key_that_expired(port: int) -> None:
    async with key_gate(port, KEY) as gate:
        found = await broken(Endpoint(gate.address, "default", api_key="an-old-key"))
    assert found.check == "Temporal"
    assert "the API key has expired" in found.found
    assert "temporal.apiKey" in found.fix


async def test_a_key_that_only_the_namespace_refuses(port: int) -> None:
    """Servers of one's own answer the question for their version without looking at who asks."""
    async with key_gate(port, KEY) as gate:
        gate.denied = frozenset({"DescribeNamespace"})
        found = await broken(Endpoint(gate.address, "default", api_key=KEY))
    assert found.check == "namespace"
    assert "denies access to namespace 'default'" in found.found


async def test_who_may_only_work_is_told_what_could_not_be_checked(port: int) -> None:
    async with key_gate(port, KEY) as gate:
        gate.denied = frozenset({"ListSearchAttributes", "DescribeTaskQueue"})
        checks = named(await diagnose_temporal(Endpoint(gate.address, "default", api_key=KEY), QUEUES))
    assert checks["search attributes"].verdict is DiagnosisLevel.NOTE
    assert CREATE_ALL in checks["search attributes"].fix
    assert checks["pollers"].verdict is DiagnosisLevel.NOTE


async def test_a_connection_with_tls_says_so(port: int) -> None:
    async with tls_gate(port, client_auth=True) as gate:
        ours = Tls(gate.ca_pem, gate.client_cert_pem, gate.client_key_pem)
        checks = named(await diagnose_temporal(Endpoint(gate.address, "default", ours), QUEUES))
    assert checks["Temporal"].found.endswith("with TLS")


async def test_search_attributes_that_are_missing_are_named_with_the_command(fresh: Endpoint) -> None:
    await prepare_namespace(fresh, THREE_DAYS)
    client = await connect(fresh)
    await remove(fresh, "Agent", "Outcome")
    found = named(await diagnose_temporal(fresh, QUEUES))["search attributes"]
    assert (found.verdict, found.found) == (DiagnosisLevel.BROKEN, "missing: Agent, Outcome")
    command = (
        f"temporal operator search-attribute create -n {fresh.namespace} --name Agent --name Outcome --type Keyword"
    )
    assert found.fix == f"`maestro init` adds the missing ones, or `{command}`"
    [done] = await prepare_namespace(fresh, THREE_DAYS)
    assert done == f"Added the search attributes Agent, Outcome to namespace {fresh.namespace}."
    assert await client.count_workflows("Agent = 'nobody'") is not None


async def test_a_search_attribute_of_another_type_is_named_with_the_command(fresh: Endpoint) -> None:
    await prepare_namespace(fresh, THREE_DAYS)
    client = await connect(fresh)
    await remove(fresh, "Channel")
    number = IndexedValueType.INDEXED_VALUE_TYPE_INT
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(namespace=fresh.namespace, search_attributes={"Channel": number})
    )
    found = named(await diagnose_temporal(fresh, QUEUES))["search attributes"]
    assert found.verdict is DiagnosisLevel.BROKEN
    assert found.found == "there is the search attribute Channel of type Int instead of Keyword"
    assert f"search-attribute remove -n {fresh.namespace} --name Channel" in found.fix
    with pytest.raises(TemporalUnavailable, match="Channel of type Int instead of Keyword"):
        await ensure_search_attributes(client, fresh.namespace)


async def test_preparing_creates_what_is_missing_and_then_changes_nothing(fresh: Endpoint) -> None:
    created, added = await prepare_namespace(fresh, THREE_DAYS)
    assert created == f"Created namespace {fresh.namespace}, which keeps finished histories for 3 days."
    assert added == f"Added the search attributes {', '.join(SEARCH_ATTRIBUTES)} to namespace {fresh.namespace}."
    assert await prepare_namespace(fresh, THREE_DAYS) == []
    checks = named(await diagnose_temporal(fresh, QUEUES))
    assert checks["namespace"].found == f"{fresh.namespace} keeps finished histories for 3 days"
    assert checks["search attributes"].verdict is DiagnosisLevel.FINE


async def test_two_may_prepare_at_once(fresh: Endpoint) -> None:
    await asyncio.gather(prepare_namespace(fresh, THREE_DAYS), prepare_namespace(fresh, THREE_DAYS))
    assert named(await diagnose_temporal(fresh, QUEUES))["search attributes"].verdict is DiagnosisLevel.FINE


async def test_who_may_not_create_a_namespace_gets_the_commands_for_who_may(port: int) -> None:
    async with key_gate(port, KEY) as gate:
        gate.denied = frozenset({"RegisterNamespace"})
        with pytest.raises(TemporalUnavailable) as refused:
            await prepare_namespace(Endpoint(gate.address, "not-ours", api_key=KEY), THREE_DAYS)
    assert "`temporal operator namespace create -n not-ours --retention 72h`" in str(refused.value)
    assert f"`temporal operator search-attribute create -n not-ours {CREATE_ALL} --type Keyword`" in str(refused.value)


async def test_who_may_not_add_search_attributes_gets_the_command_for_who_may(fresh: Endpoint) -> None:
    async with key_gate(int(fresh.address.rpartition(":")[2]), KEY) as gate:
        gate.denied = frozenset({"AddSearchAttributes"})
        with pytest.raises(TemporalUnavailable) as refused:
            await prepare_namespace(Endpoint(gate.address, fresh.namespace, api_key=KEY), THREE_DAYS)
    assert f"search-attribute create -n {fresh.namespace} {CREATE_ALL} --type Keyword" in str(refused.value)


async def test_a_server_that_is_not_there_cannot_be_prepared() -> None:
    with pytest.raises(TemporalUnavailable, match="Nothing listens at"):
        await prepare_namespace(Endpoint(f"127.0.0.1:{free_port()}", "default"), THREE_DAYS)


async def remove(endpoint: Endpoint, *names: str) -> None:
    """Remove search attributes, as an administrator does."""
    client = await connect(endpoint)
    await client.operator_service.remove_search_attributes(
        RemoveSearchAttributesRequest(namespace=endpoint.namespace, search_attributes=names)
    )
