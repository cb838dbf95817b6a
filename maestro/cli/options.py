"""The options that every command takes, before its name or after it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The configuration; without it, maestro.json where you are."),
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="The folder for everything Maestro keeps.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks, and log in detail.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]


def _port(name: str, what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, metavar="N", min=1, max=65535, help=what)
    return option


WebuiPort = Annotated[int | None, _port("--port", "The port of dashboard and API (8080).")]
WebPort = Annotated[int | None, _port("--web-port", "The port of the web connector (5070).")]
TemporalPort = Annotated[int | None, _port("--temporal-port", "The port of the embedded Temporal server (7233).")]
TemporalUiPort = Annotated[int | None, _port("--temporal-ui-port", "The port of the embedded server's Web UI (8233).")]
WorkerHealthPort = Annotated[int | None, _port("--health-port", "The port of /healthz and /metrics (9091).")]
ConnectHealthPort = Annotated[int | None, _port("--health-port", "The port of /healthz and /metrics (9092).")]


@dataclass
class Given:
    """What was given so far; what stands nearer to the end of the line wins."""

    config: Path | None = None
    data_dir: Path | None = None
    debug: bool = False

    @classmethod
    def of(cls, ctx: typer.Context, config: Path | None, data_dir: Path | None, debug: bool) -> "Given":
        """Return what the whole line says, with this last part of it."""
        given = ctx.ensure_object(cls)
        given.take(config, data_dir, debug)
        return given

    def take(self, config: Path | None, data_dir: Path | None, debug: bool) -> None:
        """Add what one part of the line says."""
        self.config = config or self.config
        self.data_dir = data_dir or self.data_dir
        self.debug = debug or self.debug
