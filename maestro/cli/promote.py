"""``maestro promote``: lets new jobs begin with a release whose workers run."""

import asyncio
from typing import Annotated

import typer

from maestro.cli.framework.commands import Commands, load_settings
from maestro.cli.framework.options import Given
from maestro.cli.framework.output import write_output
from maestro.domain.errors import ConfigurationError, TemporalUnavailable
from maestro.domain.values import View
from maestro.settings import Settings
from maestro.settings.addresses import temporal_endpoint
from temporal.client import AWAY, connect_and_check
from temporal.deployments import WorkerVersion, promote_version
from temporal.endpoint import explain_error
from temporal.sdk import configure_sdk

app = Commands()


class Promotion(View):
    """The release with which new jobs begin, and the one before it."""

    deployment: str
    current: str
    previous: str


@app.command()
def promote(
    given: Given,
    build: Annotated[str | None, "BUILD: The build to promote, such as 1.2.0-3f9a01bc; by default this one."] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, max=3600, help="How long to wait for workers of the build.")
    ] = 60,
) -> None:
    """Let new jobs begin with this release, beside the Temporal server at temporal.address.

    Run this command with the new release after its workers have started, or with the old release to go back to it. Jobs
    that have begun stay with the release that began them. A repeated run changes nothing.
    """
    settings = load_settings(given, accounts=False).settings
    if settings.temporal.embedded:
        raise ConfigurationError(
            "`maestro promote` chooses between releases beside a Temporal server that several processes share: set "
            "temporal.address (MAESTRO_TEMPORAL_ADDRESS). With an embedded server, the release that runs has all jobs."
        )
    configure_sdk()
    done = asyncio.run(_promote(settings, WorkerVersion.of_queue(settings.temporal.task_queue, build or ""), wait))
    write_output(done, _sentence_of(done), given.as_json)


async def _promote(settings: Settings, version: WorkerVersion, seconds: float) -> Promotion:
    endpoint = temporal_endpoint(settings)
    try:
        client = await connect_and_check(endpoint)
    except AWAY as error:
        raise TemporalUnavailable(explain_error(error, endpoint)) from None
    previous = await promote_version(client, version, seconds)
    return Promotion(deployment=version.deployment, current=version.build, previous=previous)


def _sentence_of(done: Promotion) -> str:
    if done.previous == done.current:
        return f"New jobs began with {done.current} already."
    rest = f" Workers of {done.previous} finish theirs." if done.previous else ""
    return f"New jobs begin with {done.current} from now on.{rest}"
