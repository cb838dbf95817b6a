"""What every test starts from: an environment without the developer's keys and settings."""

import os


def pytest_configure() -> None:
    """Remove the variables of providers and our own, so that no test ever pays or depends on who runs it.

    A hook and not a fixture: servers that live for a whole session start before any function-scoped fixture.
    """
    for name in tuple(os.environ):
        ours = name.startswith("MAESTRO_") and not name.startswith("MAESTRO_TEST_")
        if ours or name.endswith(("_API_KEY", "_BASE_URL")):
            del os.environ[name]
