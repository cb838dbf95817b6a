"""Heartbeats and crons."""

from maestro.store.repository import Repository


class Schedules(Repository):
    """What is to run when."""
