"""Runs connectors: their context, their lease, and which bots are connected."""
