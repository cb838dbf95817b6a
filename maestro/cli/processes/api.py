"""``maestro api``: dashboard and REST API in a process of their own."""

import typer

from maestro.bootstrap.api import Api
from maestro.bootstrap.process import run
from maestro.cli.framework.commands import Commands, configured
from maestro.cli.framework.options import WEBUI_PORT, Given

app = Commands()


@app.command(json=False, ports=[WEBUI_PORT])
def api(given: Given) -> None:
    """Run the dashboard and the REST API beside the Temporal server at temporal.address, workers and connectors."""
    raise typer.Exit(run(Api(configured(given), typer.echo)))
