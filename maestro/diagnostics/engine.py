"""The checks of Temporal; an embedded server that does not run is no error."""

from dataclasses import replace

from maestro.diagnostics.subject import Examined, note
from maestro.domain.errors import ConfigurationError
from maestro.domain.health import Diagnosis
from maestro.domain.messages import DEFAULT_ACCOUNT
from maestro.settings import Settings
from maestro.settings.addresses import endpoint_of
from maestro.settings.bots import configured_bots
from temporal.diagnosis import diagnose
from temporal.dispatcher import Queues
from temporal.endpoint import Endpoint
from temporal.server_process import HOST

CHECK = "Temporal"


async def engine(subject: Examined) -> list[Diagnosis]:
    """Check the server, the namespace, the search attributes and the pollers of the queues."""
    if subject.settings.temporal.embedded and not subject.holder.running:
        return [_at_rest(subject)]
    return list(await diagnose(_endpoint(subject), queue_names(subject.settings)))


def queue_names(settings: Settings) -> list[str]:
    """Return the names of the queues that need a poller."""
    temporal = settings.temporal
    if temporal.embedded:
        return [temporal.task_queue]
    queues = Queues(temporal.task_queue, temporal.llm_queue, temporal.connector_queue)
    web = [queues.connector("web", DEFAULT_ACCOUNT)] if settings.web.enabled else []
    return [queues.main, queues.llm, *web, *(queues.connector(*place) for place in _bots(settings))]


def _bots(settings: Settings) -> list[tuple[str, str]]:
    try:
        return [(bot.platform, bot.account) for bot in configured_bots(settings)]
    except ConfigurationError:  # the check of connectors reports it
        return []


def _at_rest(subject: Examined) -> Diagnosis:
    server = subject.server
    if server is not None:
        found = f"the server of an earlier run (process {server.pid}) was left behind at {HOST}:{server.port}"
        return note(CHECK, found, "Nothing to do: the next `maestro up` takes it over.")
    return note(CHECK, "the embedded server is not running", "`maestro up` starts it.")


def _endpoint(subject: Examined) -> Endpoint:
    """Return where Temporal is; an embedded server may have been started on another port than is configured."""
    endpoint, server = endpoint_of(subject.settings), subject.server
    if subject.settings.temporal.embedded and server is not None:
        return replace(endpoint, address=f"{HOST}:{server.port}")
    return endpoint
