"""Runs connectors: their context, their leases, and the bots that operators add at run time."""
