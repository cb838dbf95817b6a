"""Imported once by the server that forks the processes under test, so that each of them starts in a moment."""

import asyncio
import gc
import tempfile
from importlib import import_module
from pathlib import Path

import httpx
from structlog.testing import capture_logs

from connectors.platforms import platform, platforms
from maestro.cli.main import COMMANDS, load_command
from maestro.domain.llm.calls import LLMFailure
from maestro.llm.litellm_client import LiteLLMClient
from maestro.llm.protocols import Account
from maestro.scanner.scanner import shipped_rules
from maestro.store.engine.statements import PreparedStatement
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
    """Compile each prepared statement for both databases, and what SQLAlchemy needs for a message: once for all."""
    gc.unfreeze()  # What the product has imported is frozen, and not listed.
    for statement in [thing for thing in gc.get_objects() if isinstance(thing, PreparedStatement)]:
        _ = statement._for_sqlite, statement._for_postgresql
    with tempfile.TemporaryDirectory() as folder, capture_logs():
        rows = JobRows.at(Path(folder))
        await Spoken(rows).answered("hello", "good day")
        rows.store.close()


share_compiled_statements()
copy_new_databases()
share_trusted_certificates()
asyncio.run(warm())
for name in COMMANDS:
    load_command(name)
for name in LATE:
    import_module(name)
for name in platforms():
    import_module(platform(name).connector.partition(":")[0])
shipped_rules()
asyncio.run(compile_statements())
asyncio.run(httpx.AsyncClient().aclose())  # loads the certificates that all clients share

gc.collect()
gc.freeze()
