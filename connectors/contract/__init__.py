"""The tests that every connector has to pass; how to use them is in ``docs/howto/add-a-connector.md``.

They run under pytest with pytest-asyncio, against a server on this machine that speaks the platform's protocol.
"""

from connectors.contract.context import MemoryContext
from connectors.contract.tests import Bench, ConnectorContract, Fault

__all__ = ["Bench", "ConnectorContract", "Fault", "MemoryContext"]
