"""A ConnectorContext without a store; it belongs to the tests that every connector has to pass."""

from connectors.contract.context import MemoryContext

__all__ = ["MemoryContext"]
