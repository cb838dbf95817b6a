"""``maestro api``: dashboard and REST API in a process of their own."""

import typer

from maestro.bootstrap.api import Api
from maestro.bootstrap.process import run
from maestro.cli.configured import configured
from maestro.cli.options import Config, DataDir, Debug, Given, WebuiPort

app = typer.Typer(rich_markup_mode=None)


@app.command()
def api(
    ctx: typer.Context,
    config: Config = None,
    data_dir: DataDir = None,
    port: WebuiPort = None,
    debug: Debug = False,
) -> None:
    """Run the dashboard and the REST API beside the Temporal server at temporal.address, workers and connectors."""
    given = Given.of(ctx, config, data_dir, debug)
    raise typer.Exit(run(Api(configured(given, {"webui.port": port}), typer.echo)))
