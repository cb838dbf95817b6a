"""The description of a platform, which a package registers under the entry point ``maestro.connectors``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, cast

from connectors.options import Instance, Options
from maestro.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from connectors.base import Connector, ConnectorContext

ENTRY_POINTS = "maestro.connectors"


@dataclass(frozen=True)
class Platform:
    """A platform's options and the module of its connector; quick to import, because every command reads the settings.

    ``connector`` is the ``module:name`` of a function that creates a connector from an ``Instance`` and a
    ``ConnectorContext``; its module imports the vendor's library when the first account is connected. ``secrets``
    describes each secret, the one that identifies the account first. ``complete`` returns one sentence that names a
    missing or wrong option and the fix, or None; it is called before an account is saved.
    """

    name: str
    secrets: Mapping[str, str]
    connector: str
    options: type[Options] = Options
    complete: Callable[[Instance], str | None] = field(default=lambda _: None)

    def connect(self, instance: Instance, context: "ConnectorContext") -> "Connector":
        """Create the connector of an account; the first call imports the vendor's library, which is slow.

        Raises ``ConfigurationError`` when the library is not installed.
        """
        module, _, name = self.connector.partition(":")
        try:
            make = getattr(import_module(module), name)
        except ImportError as error:
            raise ConfigurationError(f"the connector {self.name} cannot be loaded: {error}") from None
        return cast("Callable[[Instance, ConnectorContext], Connector]", make)(instance, context)


def platforms() -> tuple[str, ...]:
    """Return the sorted names of the installed platforms."""
    return tuple(sorted(_entry_points_by_name()))


def platform(name: str) -> Platform:
    """Return the description of a platform; raises ``ConfigurationError`` that names the installed platforms."""
    point = _entry_points_by_name().get(name)
    if point is None:
        installed = ", ".join(platforms())
        raise ConfigurationError(f"there is no connector for {name!r}; the installed ones are: {installed}")
    entry = point.load()
    if not isinstance(entry, Platform):
        raise ConfigurationError(f"the entry point {name} of {ENTRY_POINTS} is not a connectors.platforms.Platform")
    return entry


@cache
def _entry_points_by_name() -> Mapping[str, EntryPoint]:
    """Return the entry points of the platforms by name.

    They are read once in a process, because this opens a file of each installed package, and the start and every change
    of a bot need them several times.
    """
    # Reversed, so that of two packages which register the same name the first one counts.
    return {point.name: point for point in reversed(tuple(entry_points(group=ENTRY_POINTS)))}
