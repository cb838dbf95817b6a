"""``maestro up``: everything in one command."""

import typer

from maestro.bootstrap.process import run
from maestro.bootstrap.up import Up
from maestro.cli.framework.commands import Commands, configured
from maestro.cli.framework.options import TEMPORAL_PORT, TEMPORAL_UI_PORT, WEB_PORT, WEBUI_PORT, Given

app = Commands()


@app.command(json=False, ports=[WEBUI_PORT, WEB_PORT, TEMPORAL_PORT, TEMPORAL_UI_PORT])
def up(given: Given) -> None:
    """Run everything: an embedded Temporal server, the worker, the connectors, the API and the dashboard.

    It prints its addresses when it is ready. Ctrl-C lets running work finish and then ends; whatever is left goes on
    with the next `maestro up`.
    """
    raise typer.Exit(run(Up(configured(given), typer.echo)))
