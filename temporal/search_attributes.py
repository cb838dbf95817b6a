"""The search attributes by which people find messages in the Temporal Web UI; they hold ids and words only."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from maestro.domain.errors import TemporalUnavailable

SEARCH_ATTRIBUTES = ("Platform", "Kind", "Channel", "Agent", "Conversation", "Outcome")
"""All are of type Keyword, of which the embedded server's SQLite store has room for ten."""

KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
PASSING = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.CANCELLED,
    }
)
"""What says nothing of our rights, only of the moment."""

_PATIENCE = timedelta(seconds=2)


@dataclass(frozen=True)
class Shortfall:
    """Which search attributes a namespace lacks, and which it has with another type than Keyword."""

    missing: tuple[str, ...]
    mistyped: Mapping[str, str]
    """From the name to the type it has, as the program ``temporal`` writes it."""


def shortfall(known: Mapping[str, IndexedValueType.ValueType]) -> Shortfall:
    """Compare what a namespace has with what we need."""
    return Shortfall(
        missing=tuple(name for name in SEARCH_ATTRIBUTES if name not in known),
        mistyped={name: _type_name(known[name]) for name in SEARCH_ATTRIBUTES if known.get(name, KEYWORD) != KEYWORD},
    )


async def lacking(client: Client, namespace: str) -> Shortfall:
    """Ask which search attributes are not as we need them; raises what the SDK raises."""
    known = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=namespace), timeout=_PATIENCE
    )
    return shortfall(known.custom_attributes)


async def ensure_search_attributes(client: Client, namespace: str) -> tuple[str, ...]:
    """Add those that are missing and return them.

    Raises ``TemporalUnavailable`` with the fix when that cannot be, ``RPCError`` when it may be in a moment.
    """
    try:
        found = await lacking(client, namespace)
        if found.missing:
            await _add(client, namespace, found.missing)
    except RPCError as error:
        if error.status in PASSING:
            raise
        raise TemporalUnavailable(
            f"Temporal refused to list or add its search attributes ({error}). Without them no message can be started: "
            f"have an administrator run `{create_command(namespace)}`."
        ) from None
    if found.mistyped:
        raise TemporalUnavailable(
            f"Namespace {namespace} has {mistyped_text(found)}, and no message can be started: "
            f"{mistyped_fix(found, namespace)}."
        )
    return found.missing


async def _add(client: Client, namespace: str, names: tuple[str, ...]) -> None:
    """Add them; that another process was quicker, which the server refuses in several ways, is as good."""
    try:
        await client.operator_service.add_search_attributes(_request(namespace, names), timeout=_PATIENCE)
    except RPCError:
        if (await lacking(client, namespace)).missing:
            raise


def create_command(namespace: str, names: tuple[str, ...] = SEARCH_ATTRIBUTES) -> str:
    """Return what an administrator types to add search attributes."""
    named = " ".join(f"--name {name}" for name in names)
    return f"temporal operator search-attribute create -n {namespace} {named} --type Keyword"


def mistyped_text(found: Shortfall) -> str:
    """Return which attributes have another type."""
    each = ", ".join(f"{name} of type {kind}" for name, kind in found.mistyped.items())
    return f"the search attribute {each} instead of Keyword"


def mistyped_fix(found: Shortfall, namespace: str) -> str:
    """Return what to do about attributes of another type."""
    names = tuple(found.mistyped)
    named = " ".join(f"--name {name}" for name in names)
    remove = f"temporal operator search-attribute remove -n {namespace} {named} --yes"
    return (
        "set temporal.namespace to a namespace of Maestro's own, or replace them with "
        f"`{remove}` and `{create_command(namespace, names)}`"
    )


def _type_name(kind: IndexedValueType.ValueType) -> str:
    words = IndexedValueType.Name(kind).removeprefix("INDEXED_VALUE_TYPE_").split("_")
    return "".join(word.capitalize() for word in words)


def _request(namespace: str, names: tuple[str, ...]) -> AddSearchAttributesRequest:
    return AddSearchAttributesRequest(namespace=namespace, search_attributes=dict.fromkeys(names, KEYWORD))
