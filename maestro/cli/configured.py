"""From the options of a command to the settings it works with."""

from maestro.cli.options import Given
from maestro.settings import Loaded, load, read_environment


def configured(given: Given, *, accounts: bool = True) -> Loaded:
    """Load the settings, with what was given on the line in place of theirs.

    Without ``accounts`` the command works where the keys of the models are not, such as in a second terminal.

    Raises ``ConfigurationError``.
    """
    overrides = {"dataDir": given.data_dir, "logs.level": "debug" if given.debug else None, **given.ports}
    return load(given.config, read_environment(), overrides, accounts=accounts)
