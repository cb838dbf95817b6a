"""The release of the installed distribution, read without importing anything else."""

from importlib.metadata import version

DISTRIBUTION = "maestro-agents"


def release() -> str:
    return version(DISTRIBUTION)
