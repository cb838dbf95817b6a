"""Imported once by the server that forks the processes under test, so that each of them starts in a moment."""

import asyncio
import gc
import tempfile
from importlib import import_module
from pathlib import Path

import httpx
from structlog.testing import capture_logs

from maestro.cli.main import COMMANDS, load_command
from maestro.domain.llm.calls import LLMFailure
from maestro.llm.litellm_client import LiteLLMClient
from maestro.llm.protocols import Account
from maestro.scanner.scanner import shipped_rules
from tests.support import composed
from tests.support.fresh_store import copy_new_databases
from tests.support.job_rows import JobRows
from tests.support.llm_requests import request_of
from tests.support.one_dialect import share_compiled_statements
from tests.support.one_trust_store import share_trusted_certificates
from tests.support.spoken import Spoken

__all__ = ["composed"]

NOBODY = "http://127.0.0.1:9/v1"
"""Where no model listens."""

LATE = (
    "anyio._backends._asyncio",
    "api.app",
    "concurrent.futures.process",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.websockets.auto",
)
"""What every Maestro imports after its start; the API alone takes a third of a second of CPU time."""


async def warm() -> None:
    """Make one call in vain: litellm imports much of itself at the first, which takes a second of the event loop."""
    client = LiteLLMClient(lambda _: b"")
    try:
        await client.ask(Account("nobody", "openai", "gpt-4o-mini", base_url=NOBODY), request_of())
    except LLMFailure:
        await client.library.close_connections()


async def compile_statements() -> None:
    """Answer a message: what this compiles, no process compiles again."""
    with tempfile.TemporaryDirectory() as folder, capture_logs():
        rows = JobRows.at(Path(folder))
        await Spoken(rows).answered("hello", "good day")
        rows.store.close()


share_compiled_statements()
copy_new_databases()
share_trusted_certificates()
asyncio.run(warm())
asyncio.run(compile_statements())
for name in COMMANDS:
    load_command(name)
for name in LATE:
    import_module(name)
shipped_rules()
asyncio.run(httpx.AsyncClient().aclose())  # loads the certificates that all clients share

gc.collect()
gc.freeze()
