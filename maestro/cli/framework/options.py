"""The options that every command takes, before or after its name, and the options for ports."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The configuration file; by default maestro.json in the current folder."
    ),
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", metavar="DIR", help="The folder for the data of Maestro.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks, and log in detail.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]


@dataclass(frozen=True)
class Port:
    """A port of Maestro: the key of its setting, the option that overrides the setting, and the service."""

    key: str
    option: str
    service: str


WEBUI_PORT = Port("webui.port", "--port", "dashboard and API (8080)")
WEB_PORT = Port("web.port", "--web-port", "the web connector (5070)")
TEMPORAL_PORT = Port("temporal.port", "--temporal-port", "the embedded Temporal server (7233)")
TEMPORAL_UI_PORT = Port("temporal.uiPort", "--temporal-ui-port", "the embedded server's Web UI (8233)")
WORKER_HEALTH_PORT = Port("health.workerPort", "--health-port", "/healthz and /metrics (9091)")
CONNECT_HEALTH_PORT = Port("health.connectPort", "--health-port", "/healthz and /metrics (9092)")


@dataclass
class Given:
    """The common options of a command line; an option after the command's name overrides one before it.

    ``ports`` maps the key of a port's setting to the port given as an option, or to None.
    """

    config: Path | None = None
    data_dir: Path | None = None
    debug: bool = False
    as_json: bool = False
    ports: dict[str, int | None] = field(default_factory=dict)

    def update(self, config: Path | None, data_dir: Path | None, debug: bool) -> None:
        """Take over the options that stand before the command's name, or after it."""
        self.config = config or self.config
        self.data_dir = data_dir or self.data_dir
        self.debug = debug or self.debug
