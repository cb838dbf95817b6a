"""Imported once by the server that forks the processes under test, so that each of them starts in a moment."""

import asyncio

from maestro.cli.lazy import COMMANDS, load
from maestro.domain.llm.errors import LLMFailure
from maestro.llm.litellm_client import LiteLLMClient
from maestro.llm.protocols import Account
from tests.support import composed
from tests.support.llm_requests import request_of

__all__ = ["composed"]

NOBODY = "http://127.0.0.1:9/v1"
"""Where no model listens."""


async def warm() -> None:
    """Make one call in vain: litellm imports much of itself at the first, which takes a second of the event loop."""
    client = LiteLLMClient(lambda _: b"")
    try:
        await client.ask(Account("nobody", "openai", "gpt-4o-mini", base_url=NOBODY), request_of())
    except LLMFailure:
        await client.close()


asyncio.run(warm())
for name in COMMANDS:
    load(name)
