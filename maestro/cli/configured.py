"""From the options of a command to the settings it works with."""

from collections.abc import Mapping

from maestro.cli.options import Given
from maestro.settings import Loaded, load, read_environment


def configured(given: Given, overrides: Mapping[str, object] | None = None, *, accounts: bool = True) -> Loaded:
    """Load the settings; ``overrides`` are the command's own options by key, None where not given.

    Without ``accounts`` the command works where the keys of the models are not, such as in a second terminal.

    Raises ``ConfigurationError``.
    """
    common = {"dataDir": given.data_dir, "logs.level": "debug" if given.debug else None}
    return load(given.config, read_environment(), {**common, **(overrides or {})}, accounts=accounts)
