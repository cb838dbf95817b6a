"""``maestro up``, ``worker``, ``api`` and ``connect``: run all of Maestro in one process, or a part of it."""

from typing import Annotated

import typer

from maestro.bootstrap.api import Api
from maestro.bootstrap.connect import Connect
from maestro.bootstrap.process import run_process
from maestro.bootstrap.up import Up
from maestro.bootstrap.worker import Worker
from maestro.cli.framework.commands import Commands, load_settings
from maestro.cli.framework.options import (
    CONNECT_HEALTH_PORT,
    TEMPORAL_PORT,
    TEMPORAL_UI_PORT,
    WEB_PORT,
    WEBUI_PORT,
    WORKER_HEALTH_PORT,
    Given,
)

up, worker, api, connect = Commands(), Commands(), Commands(), Commands()


@up.command(json=False, ports=[WEBUI_PORT, WEB_PORT, TEMPORAL_PORT, TEMPORAL_UI_PORT])
def run_everything(given: Given) -> None:
    """Run everything: an embedded Temporal server, the worker, the connectors, the API and the dashboard.

    The command prints its addresses when Maestro is ready. Ctrl-C lets running steps finish and then ends the process;
    the next `maestro up` continues unfinished jobs.
    """
    raise typer.Exit(run_process(Up(load_settings(given), typer.echo)))


@worker.command(json=False, ports=[WORKER_HEALTH_PORT])
def run_worker(
    given: Given,
    promote: Annotated[
        bool, typer.Option("--promote", help="Let new jobs begin with this release once the worker is ready.")
    ] = False,
) -> None:
    """Run workflows, their steps and model calls against the Temporal server at temporal.address.

    Several workers may run side by side, also of two releases: a job stays with the release that began it, and new jobs
    begin with the release that was promoted last. Ctrl-C lets running steps finish and then ends the process; another
    worker, or the next start, continues unfinished jobs.
    """
    raise typer.Exit(run_process(Worker(load_settings(given), typer.echo, promote=promote)))


@api.command(json=False, ports=[WEBUI_PORT])
def run_api(given: Given) -> None:
    """Run the dashboard and the REST API, beside workers, connectors and the Temporal server at temporal.address."""
    raise typer.Exit(run_process(Api(load_settings(given), typer.echo)))


@connect.command(json=False, ports=[WEB_PORT, CONNECT_HEALTH_PORT])
def run_connectors(given: Given, platforms: Annotated[list[str], "PLATFORM...: The platforms, such as web."]) -> None:
    """Run the connectors of these platforms, beside workers and the Temporal server at temporal.address.

    Only one process at a time runs the connector of an account (bot). A second process waits, and takes over when the
    first ends.
    """
    raise typer.Exit(run_process(Connect(load_settings(given, accounts=False), typer.echo, platforms)))
