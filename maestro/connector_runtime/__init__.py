"""The runtime of connectors: their context, their leases, and the bots that operators add while Maestro runs."""
