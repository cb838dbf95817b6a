"""The release of the installed distribution, read without importing anything else."""

from importlib.metadata import version


def release() -> str:
    return version("maestro-agents")
