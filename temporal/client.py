"""Connects to Temporal, patiently, with the converter that keeps text out of histories."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError

from temporal.failures import SafeFailureConverter

__all__ = ["DATA_CONVERTER", "Client", "Endpoint", "connect", "connect_patiently", "connect_soon"]

FIRST_WAIT = 0.2
LONGEST_WAIT = 5.0

DATA_CONVERTER = replace(pydantic_data_converter, failure_converter_class=SafeFailureConverter)


@dataclass(frozen=True)
class Endpoint:
    """Where Temporal is and who we are there."""

    address: str
    namespace: str
    tls: bool = False
    api_key: str = ""


async def connect(endpoint: Endpoint) -> Client:
    """Connect once; raises what the SDK raises."""
    return await Client.connect(
        endpoint.address,
        namespace=endpoint.namespace,
        tls=endpoint.tls,
        api_key=endpoint.api_key or None,
        data_converter=DATA_CONVERTER,
    )


async def connect_soon(endpoint: Endpoint, seconds: float) -> Client | None:
    """Connect within a few seconds; None when Temporal is not there."""
    try:
        return await asyncio.wait_for(connect(endpoint), seconds)
    except (RPCError, RuntimeError, OSError):
        return None


async def connect_patiently(endpoint: Endpoint, report: Callable[[str], None]) -> Client:
    """Connect, trying again for as long as it takes, and say so when the state changes."""
    wait = FIRST_WAIT
    said = False
    while True:
        try:
            client = await connect(endpoint)
        except (RPCError, RuntimeError, OSError) as error:
            if not said:
                report(f"Temporal at {endpoint.address} is not reachable yet ({type(error).__name__}); trying on")
                said = True
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)
            continue
        if said:
            report(f"Temporal at {endpoint.address} is reachable")
        return client
