"""Whether a Temporal server works: its gRPC service, its namespace, its Web UI and its search attributes."""

import asyncio
from datetime import timedelta

import httpx
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from maestro.domain.errors import TemporalUnavailable
from temporal.server_command import NAMESPACE, SEARCH_ATTRIBUTES

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
    try:
        known = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=NAMESPACE), timeout=_PATIENCE
        )
        missing = [name for name in SEARCH_ATTRIBUTES if name not in known.custom_attributes]
        if missing:
            await client.operator_service.add_search_attributes(_request(missing), timeout=_PATIENCE)
    except (RPCError, RuntimeError) as error:
        raise TemporalUnavailable(f"The Temporal server at {address} refused its search attributes: {error}") from error


def _request(names: list[str]) -> AddSearchAttributesRequest:
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    return AddSearchAttributesRequest(namespace=NAMESPACE, search_attributes=dict.fromkeys(names, keyword))
