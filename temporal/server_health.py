"""Whether a Temporal server works: its gRPC service, its namespace, its Web UI and its search attributes."""

import asyncio
from datetime import timedelta

import httpx
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from temporal.search_attributes import ensure_search_attributes
from temporal.server_command import NAMESPACE

_PATIENCE = timedelta(seconds=2)
_PAUSE = 0.05


async def until_ready(address: str, ui_url: str) -> None:
    """Return when the server answers in full; the caller sets the time limit."""
    client = await Client.connect(address, namespace=NAMESPACE, lazy=True)
    async with httpx.AsyncClient(timeout=_PATIENCE.total_seconds(), trust_env=False) as http:
        while not await _answers(client, http, ui_url):  # noqa: ASYNC110 - no event reaches us from another process
            await asyncio.sleep(_PAUSE)


async def _answers(client: Client, http: httpx.AsyncClient, ui_url: str) -> bool:
    try:
        healthy = await client.service_client.check_health(timeout=_PATIENCE)
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=NAMESPACE), timeout=_PATIENCE
        )
        page = await http.get(ui_url)
    except (RPCError, RuntimeError, httpx.HTTPError):  # a first connection that fails is a plain RuntimeError
        return False
    return healthy and page.is_success


async def register_search_attributes(address: str) -> None:
    """Add the search attributes that are missing.

    The server's own flags set them only when it creates its database, so a release that brings a new one needs this.
    Raises TemporalUnavailable when the server refuses.
    """
    client = await Client.connect(address, namespace=NAMESPACE, lazy=True)
    await ensure_search_attributes(client, NAMESPACE)
