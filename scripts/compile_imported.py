"""Compile what a start imports, and nothing else: most bytecode of the libraries would never be read.

Importing writes the bytecode. Python does the same with all other modules when they are imported first.
"""

import os
import pkgutil
import sys
from importlib import import_module


def main() -> None:
    """Import every command, the model library and the server; run by the Python of the environment."""
    sys.dont_write_bytecode = False
    # As maestro/llm/litellm_client.py imports it: without a look at the internet or at a file .env.
    os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MODE="PRODUCTION", HF_HUB_OFFLINE="1")
    commands = import_module("maestro.cli")
    names = [module.name for module in pkgutil.walk_packages(commands.__path__, "maestro.cli.")]
    servers = ("api.app", "litellm", "uvicorn.protocols.http.h11_impl")
    for name in (*names, *servers, "maestro.store.engine.schema", "alembic.command", "alembic.config"):
        import_module(name)


if __name__ == "__main__":
    main()
