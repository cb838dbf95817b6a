"""``maestro connect``: connectors in a process of their own."""

from typing import Annotated

import typer

from maestro.bootstrap.connect import Connect
from maestro.bootstrap.process import run
from maestro.cli.framework.commands import Commands, configured
from maestro.cli.framework.options import CONNECT_HEALTH_PORT, WEB_PORT, Given

app = Commands()


@app.command(json=False, ports=[WEB_PORT, CONNECT_HEALTH_PORT])
def connect(
    given: Given,
    platforms: Annotated[list[str], "PLATFORM...: Which connectors, such as web."],
) -> None:
    """Run the connectors of these platforms beside the Temporal server at temporal.address and workers.

    Only one process at a time works for an account of a platform; a second one stands by and takes over when the first
    ends.
    """
    raise typer.Exit(run(Connect(configured(given, accounts=False), typer.echo, platforms)))
