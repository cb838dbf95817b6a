"""``maestro worker``: workflows and model calls in a process of their own."""

import typer

from maestro.bootstrap.process import run
from maestro.bootstrap.worker import Worker
from maestro.cli.framework.commands import Commands, configured
from maestro.cli.framework.options import WORKER_HEALTH_PORT, Given

app = Commands()


@app.command(json=False, ports=[WORKER_HEALTH_PORT])
def worker(given: Given) -> None:
    """Run the workflows, their local steps and the model calls against the Temporal server at temporal.address.

    Several workers may run side by side. Ctrl-C lets running work finish and then ends; what is left goes on elsewhere,
    or with the next start.
    """
    raise typer.Exit(run(Worker(configured(given), typer.echo)))
