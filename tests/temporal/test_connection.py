"""The connection to Temporal, over the real wire: why there is none, how to mend it, and that it goes on by itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import grpc.aio
import pytest
import pytest_asyncio
import trustme
from temporalio import activity

from maestro.domain.errors import ConfigurationError
from temporal.client import (
    AWAY,
    connect,
    connect_and_check,
    connect_with_retries,
    connection_warning,
    find_connection_problem,
    watch_connection,
)
from temporal.endpoint import Endpoint, Tls, explain_error
from temporal.engine import WorkerLoop, WorkerParts
from tests.support.instance import until
from tests.support.ports import free_port
from tests.support.temporal_gate import key_gate, plain_gate, port_of, temporal_server, tls_gate

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("connection")]

PATIENCE = 60.0
KEY = "the-right-key"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    """Give the port of a real Temporal server, in plain text."""
    async with temporal_server(tmp_path_factory.mktemp("temporal")) as server:
        yield port_of(server)


class Told:
    """What was reported, and a way to wait for it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._new = asyncio.Event()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._new.set()

    async def until(self, words: str) -> None:
        """Return once a line contains the words."""
        async with asyncio.timeout(PATIENCE):
            while not any(words in line for line in self.lines):
                self._new.clear()
                await self._new.wait()


async def failure(endpoint: Endpoint) -> BaseException:
    """Return what reaching this endpoint raises."""
    with pytest.raises(AWAY) as failed:
        await connect_and_check(endpoint)
    return failed.value


async def why(endpoint: Endpoint) -> str:
    """Return what people are told of an endpoint that cannot be reached."""
    return explain_error(await failure(endpoint), endpoint)


# Addresses


async def test_an_address_where_nothing_listens() -> None:
    address = f"127.0.0.1:{free_port()}"
    said = await why(Endpoint(address, "default"))
    assert said == f"Nothing listens at {address}: start the Temporal server there, or correct temporal.address."


async def test_the_embedded_server_is_not_for_people_to_start() -> None:
    endpoint = Endpoint(f"127.0.0.1:{free_port()}", "default", embedded=True)
    assert "`maestro up` starts and restarts the server" in await why(endpoint)


async def test_a_name_that_does_not_resolve() -> None:
    said = await why(Endpoint("no-such-host.invalid:7233", "default"))
    assert "The name no-such-host.invalid of temporal.address does not resolve" in said


async def test_a_web_server_is_not_temporal() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await reader.read()  # closing while the client still writes would cut its reading off
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", address := free_port()):
        said = await why(Endpoint(f"127.0.0.1:{address}", "default"))
    # The SDK tells of the bytes that are no HTTP/2, or of the connection that ended over them, whichever it sees first.
    assert "is not Temporal" in said or "closes them at once" in said
    assert "correct temporal.address" in said


async def test_another_grpc_server_is_not_temporal() -> None:
    server = grpc.aio.server()
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    said = await why(Endpoint(address, "default"))
    await server.stop(None)
    assert f"The server at {address} is not Temporal" in said


async def test_a_namespace_that_is_not_there(port: int) -> None:
    address = f"127.0.0.1:{port}"
    await connect(Endpoint(address, "prod"))  # connecting alone does not tell
    said = await why(Endpoint(address, "prod"))
    assert f"Temporal at {address} has no namespace 'prod'" in said
    assert "`maestro init` or `temporal operator namespace create -n prod`, or correct temporal.namespace" in said


# TLS


async def test_a_private_authority_is_trusted(port: int) -> None:
    async with tls_gate(port) as gate:
        client = await connect_and_check(Endpoint(gate.address, "default", Tls(ca=gate.ca_pem)))
        assert await client.count_workflows() is not None


async def test_a_certificate_of_ours_is_shown_where_it_is_asked_for(port: int) -> None:
    async with tls_gate(port, client_auth=True) as gate:
        ours = Tls(gate.ca_pem, gate.client_cert_pem, gate.client_key_pem)
        await connect_and_check(Endpoint(gate.address, "default", ours))


async def test_the_name_in_the_certificate_may_be_another_than_in_the_address(port: int) -> None:
    async with tls_gate(port, names=["temporal.example.org"]) as gate:
        said = await why(Endpoint(gate.address, "default", Tls(gate.ca_pem)))
        assert "made for another name: set temporal.tlsServerName" in said
        await connect_and_check(Endpoint(gate.address, "default", Tls(gate.ca_pem, server_name="temporal.example.org")))


async def test_tls_asked_of_a_server_that_speaks_plain_text(port: int) -> None:
    said = await why(Endpoint(f"127.0.0.1:{port}", "default", Tls()))
    assert "speaks plain text, and temporal.tls asks for TLS: set temporal.tls to false" in said


async def test_plain_text_spoken_to_a_server_that_wants_tls(port: int) -> None:
    async with tls_gate(port) as gate:
        said = await why(Endpoint(gate.address, "default"))
    assert "if the server requires TLS, set temporal.tls to true" in said


@pytest.mark.parametrize("ca", ["", trustme.CA().cert_pem.bytes().decode()])
async def test_an_authority_that_is_not_trusted(port: int, ca: str) -> None:
    async with tls_gate(port) as gate:
        said = await why(Endpoint(gate.address, "default", Tls(ca)))
    assert "not made by an authority that this machine trusts: set temporal.tlsCa" in said


async def test_a_certificate_of_ours_is_asked_for_and_there_is_none(port: int) -> None:
    async with tls_gate(port, client_auth=True) as gate:
        said = await why(Endpoint(gate.address, "default", Tls(gate.ca_pem)))
    assert "set temporal.tlsCert and temporal.tlsKey" in said


async def test_a_certificate_of_ours_that_the_server_does_not_trust(port: int) -> None:
    stranger = trustme.CA().issue_cert("somebody@example.org")
    cert, key = stranger.cert_chain_pems[0].bytes().decode(), stranger.private_key_pem.bytes().decode()
    async with tls_gate(port, client_auth=True) as gate:
        said = await why(Endpoint(gate.address, "default", Tls(gate.ca_pem, cert, key)))
    assert "temporal.tlsCert" in said
    assert "authority" in said


async def test_a_certificate_and_a_key_that_are_no_pair(port: int) -> None:
    other = trustme.CA().private_key_pem.bytes().decode()
    async with tls_gate(port, client_auth=True) as gate:
        said = await why(Endpoint(gate.address, "default", Tls(gate.ca_pem, gate.client_cert_pem, other)))
    assert "temporal.tlsCert and temporal.tlsKey cannot be used together" in said


@pytest.mark.parametrize("setting", ["ca", "cert", "key"])
async def test_a_text_that_is_no_pem_is_refused_at_once(setting: str) -> None:
    """The SDK says nothing of a false authority: it behaves as if none had been given."""
    with pytest.raises(ConfigurationError, match=rf"temporal.tls{setting.capitalize()} holds no .* in PEM form"):
        Tls(**{setting: "/etc/maestro/some.pem"})


# API keys


async def test_the_api_key_is_sent(port: int) -> None:
    async with key_gate(port, KEY) as gate:
        await connect_and_check(Endpoint(gate.address, "default", api_key=KEY))


async def test_an_api_key_is_asked_for_and_there_is_none(port: int) -> None:
    async with key_gate(port, KEY) as gate:
        said = await why(Endpoint(gate.address, "default"))
    assert "requires authentication" in said
    assert "set temporal.apiKey" in said


async def test_an_expired_key_is_called_expired_and_not_shown(port: int) -> None:
    async with key_gate(port, KEY) as gate:
        gate.refusal = "the key an-old-key: api key expired"
        said = await why(Endpoint(gate.address, "default", api_key="an-old-key"))
    assert "says that the API key has expired (the key ***: api key expired)" in said
    assert "put it where temporal.apiKey is read from and restart Maestro" in said
    assert "an-old-key" not in said


async def test_a_wrong_key_is_called_not_accepted(port: int) -> None:
    async with key_gate(port, KEY) as gate:
        gate.refusal = "Jwt verification fails"
        said = await why(Endpoint(gate.address, "default", api_key="another"))
    assert "does not accept the API key (Jwt verification fails)" in said


async def test_a_key_without_rights_in_the_namespace(port: int) -> None:
    async with key_gate(port, KEY) as gate:
        gate.denied = frozenset({"DescribeNamespace"})
        said = await why(Endpoint(gate.address, "default", api_key=KEY))
    assert "denies access to namespace 'default': allow the API key (temporal.apiKey) to describe" in said


async def test_a_key_that_travels_in_plain_text_is_worth_a_note() -> None:
    note = connection_warning(Endpoint("temporal.example.org:7233", "default", api_key=KEY))
    assert "in plain text: set temporal.tls to true" in note
    assert KEY not in note
    assert connection_warning(Endpoint("temporal.example.org:7233", "default", Tls(), KEY)) == ""
    assert connection_warning(Endpoint("localhost:7233", "default", api_key=KEY)) == ""


# Patience


async def test_each_change_of_the_reason_is_told_once_until_it_works(port: int) -> None:
    told, address = Told(), free_port()
    endpoint = Endpoint(f"127.0.0.1:{address}", "default", api_key=KEY)
    connecting = asyncio.create_task(connect_with_retries(endpoint, told))
    await told.until("Nothing listens")
    async with key_gate(port, "another", address) as gate:
        await told.until("api key expired")
        gate.denied, gate.key = frozenset({"*"}), KEY
        await told.until("denies access")
        gate.denied = frozenset()
        await asyncio.wait_for(connecting, PATIENCE)
    assert told.lines == [
        explained(told, "Nothing listens"),
        explained(told, "api key expired"),
        explained(told, "denies access"),
        f"Temporal at {endpoint.address} is reachable.",
    ]


def explained(told: Told, words: str) -> str:
    """Return the one line that contains the words."""
    [line] = [line for line in told.lines if words in line]
    assert line.endswith("Trying again until Temporal works.")
    return line


async def test_a_connection_that_works_at_once_is_not_talked_about(port: int) -> None:
    told = Told()
    await connect_with_retries(Endpoint(f"127.0.0.1:{port}", "default"), told)
    assert told.lines == []


@contextlib.asynccontextmanager
async def watching(endpoint: Endpoint, told: Callable[[str], None]) -> AsyncIterator[None]:
    """Watch a connection for the length of a block."""
    client = await connect_with_retries(endpoint, told)
    watch_task = asyncio.create_task(watch_connection(client, endpoint, told, seconds=0.05))
    try:
        yield
    finally:
        watch_task.cancel()
        await asyncio.gather(watch_task, return_exceptions=True)


async def test_a_server_that_goes_away_later_is_told_once_and_so_is_its_return(port: int) -> None:
    told, address = Told(), free_port()
    endpoint = Endpoint(f"127.0.0.1:{address}", "default")
    async with contextlib.AsyncExitStack() as stack:
        async with plain_gate(port, address):
            await stack.enter_async_context(watching(endpoint, told))
        await told.until("Nothing listens")
        async with plain_gate(port, address):
            await told.until("works again")
    assert told.lines == [explained(told, "Nothing listens"), f"Temporal at {endpoint.address} works again."]


async def test_a_key_that_expires_later_is_told_once_and_so_is_its_return(port: int) -> None:
    told = Told()
    async with key_gate(port, KEY) as gate:
        endpoint = Endpoint(gate.address, "default", api_key=KEY)
        async with watching(endpoint, told):
            gate.key = "another"
            await told.until("api key expired")
            gate.key = KEY
            await told.until("works again")
    assert told.lines == [explained(told, "api key expired"), f"Temporal at {endpoint.address} works again."]


@activity.defn
async def nothing() -> None:
    """Do nothing; it is there so that a worker has something to offer."""


async def test_a_worker_that_temporal_refuses_says_so_once_and_begins_again_by_itself(port: int) -> None:
    """The SDK's worker gives up at once when its first question is refused, and after a minute later on."""
    told, begun = Told(), Told()
    parts = WorkerParts("refused", [nothing], (), timedelta(0), workflows=False)
    async with key_gate(port, KEY) as gate:
        client = await connect(Endpoint(gate.address, "default", api_key=KEY))
        gate.key = "another"
        loop = WorkerLoop(client, parts, told)
        working = asyncio.create_task(loop.run_worker(lambda: begun("begun")))
        await told.until("The worker of queue refused stopped")
        asked = gate.refused
        await until(lambda: gate.refused >= asked + 2, PATIENCE, what="two more questions of the stopped worker")
        assert not begun.lines
        gate.key = KEY
        await until(lambda: begun.lines == ["begun"], PATIENCE, what="a beginning that Temporal sees")
        limit = timedelta(seconds=PATIENCE)
        await client.execute_activity(nothing, id="nothing", task_queue="refused", schedule_to_close_timeout=limit)
        working.cancel()
    assert len(told.lines) == 1


async def test_a_running_connection_can_be_asked_for_its_trouble(port: int) -> None:
    async with key_gate(port, KEY) as gate:
        endpoint = Endpoint(gate.address, "default", api_key=KEY)
        client = await connect(endpoint)
        gate.key = "another"
        assert "api key expired" in await find_connection_problem(client, endpoint)
        gate.key = KEY
        assert await find_connection_problem(client, endpoint) == ""
