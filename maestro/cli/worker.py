"""``maestro worker``: workflows and model calls in a process of their own."""

import typer

from maestro.bootstrap.process import run
from maestro.bootstrap.worker import Worker
from maestro.cli.configured import configured
from maestro.cli.options import Config, DataDir, Debug, Given, WorkerHealthPort

app = typer.Typer(rich_markup_mode=None)


@app.command()
def worker(
    ctx: typer.Context,
    config: Config = None,
    data_dir: DataDir = None,
    health_port: WorkerHealthPort = None,
    debug: Debug = False,
) -> None:
    """Run the workflows, their local steps and the model calls against the Temporal server at temporal.address.

    Several workers may run side by side. Ctrl-C lets running work finish and then ends; what is left goes on elsewhere,
    or with the next start.
    """
    given = Given.of(ctx, config, data_dir, debug)
    raise typer.Exit(run(Worker(configured(given, {"health.workerPort": health_port}), typer.echo)))
