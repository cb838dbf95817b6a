"""``maestro up``: everything in one command."""

import typer

from maestro.bootstrap.process import run
from maestro.bootstrap.up import Up
from maestro.cli.configured import configured
from maestro.cli.options import Config, DataDir, Debug, Given, TemporalPort, TemporalUiPort, WebPort, WebuiPort

app = typer.Typer(rich_markup_mode=None)


@app.command()
def up(
    ctx: typer.Context,
    config: Config = None,
    data_dir: DataDir = None,
    port: WebuiPort = None,
    web_port: WebPort = None,
    temporal_port: TemporalPort = None,
    temporal_ui_port: TemporalUiPort = None,
    debug: Debug = False,
) -> None:
    """Run everything: an embedded Temporal server, the worker, the connectors, the API and the dashboard.

    It prints its addresses when it is ready. Ctrl-C lets running work finish and then ends; whatever is left goes on
    with the next `maestro up`.
    """
    given = Given.of(ctx, config, data_dir, debug)
    ports = {
        "webui.port": port,
        "web.port": web_port,
        "temporal.port": temporal_port,
        "temporal.uiPort": temporal_ui_port,
    }
    raise typer.Exit(run(Up(configured(given, ports), typer.echo)))
