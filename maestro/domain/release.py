"""The release of the installed distribution, read without importing other modules of Maestro."""

from importlib.metadata import version


def release() -> str:
    return version("maestro-agents")
