"""The contract tests that every connector has to pass; ``docs/howto/add-a-connector.md`` explains their use.

The tests run under pytest with pytest-asyncio, against a local server that speaks the platform's protocol.
"""

from connectors.contract.context import MemoryContext
from connectors.contract.tests import Bench, ConnectorContract, Fault

__all__ = ["Bench", "ConnectorContract", "Fault", "MemoryContext"]
