"""The search attributes by which people find messages in the Temporal Web UI; they hold ids and words only."""

from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from maestro.domain.errors import TemporalUnavailable

SEARCH_ATTRIBUTES = ("Platform", "Kind", "Channel", "Agent", "Conversation", "Outcome")
"""All are of type Keyword, of which the embedded server's SQLite store has room for ten."""

_PATIENCE = timedelta(seconds=2)


async def ensure_search_attributes(client: Client, namespace: str) -> None:
    """Add those that are missing; raises ``TemporalUnavailable`` with the fix when the server refuses."""
    try:
        known = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=namespace), timeout=_PATIENCE
        )
        missing = [name for name in SEARCH_ATTRIBUTES if name not in known.custom_attributes]
        if missing:
            await client.operator_service.add_search_attributes(_request(namespace, missing), timeout=_PATIENCE)
    except (RPCError, RuntimeError) as error:
        raise TemporalUnavailable(
            f"Temporal refused to list or add its search attributes ({error}). Without them no message can be started: "
            f"have an administrator add {', '.join(SEARCH_ATTRIBUTES)} to namespace {namespace}, all of type Keyword."
        ) from None


def _request(namespace: str, names: list[str]) -> AddSearchAttributesRequest:
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    return AddSearchAttributesRequest(namespace=namespace, search_attributes=dict.fromkeys(names, keyword))
