"""Model calls through the real litellm, against a server that speaks each provider's wire format."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from maestro.llm.litellm_client import LiteLLMClient
from maestro.llm.middleware.limits import Deadline
from maestro.llm.protocols import LLMClient, chain_middleware
from tests.support.llm_fakes import Checked
from tests.support.llm_requests import MODELS, PICTURE, OneAccount, account_at
from tests.support.llm_server import LLMServer


@pytest.fixture(scope="package")
def running() -> Iterator[LLMServer]:
    with LLMServer.running() as server:
        yield server


@pytest.fixture
def server(running: LLMServer) -> LLMServer:
    running.reset()
    return running


@pytest.fixture(params=sorted(MODELS))
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def litellm() -> AsyncIterator[LiteLLMClient]:
    client = LiteLLMClient(lambda _: PICTURE)
    yield client
    await client.library.close_connections()


@pytest.fixture
def transport(litellm: LiteLLMClient, server: LLMServer, provider: str) -> LLMClient:
    return OneAccount(litellm, account_at(server, provider))


@pytest.fixture
def client(transport: LLMClient) -> LLMClient:
    return chain_middleware(transport, Checked, lambda inner: Deadline(inner, lambda: timedelta(seconds=30)))
