"""``maestro connect``: connectors in a process of their own."""

from typing import Annotated

import typer

from maestro.bootstrap.connect import Connect
from maestro.bootstrap.process import run
from maestro.cli.configured import configured
from maestro.cli.options import Config, ConnectHealthPort, DataDir, Debug, Given, WebPort

app = typer.Typer(rich_markup_mode=None)


@app.command()
def connect(
    ctx: typer.Context,
    platforms: Annotated[list[str], typer.Argument(metavar="PLATFORM...", help="Which connectors, such as web.")],
    config: Config = None,
    data_dir: DataDir = None,
    web_port: WebPort = None,
    health_port: ConnectHealthPort = None,
    debug: Debug = False,
) -> None:
    """Run the connectors of these platforms beside the Temporal server at temporal.address and workers.

    Only one process at a time works for an account of a platform; a second one stands by and takes over when the first
    ends.
    """
    given = Given.of(ctx, config, data_dir, debug)
    ports = {"web.port": web_port, "health.connectPort": health_port}
    raise typer.Exit(run(Connect(configured(given, ports, accounts=False), typer.echo, platforms)))
