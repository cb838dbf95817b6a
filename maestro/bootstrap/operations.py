"""Composes the operations: schedules, webhooks, budgets, batches, and jobs."""

from collections.abc import Callable

from maestro.bootstrap.flow import queues
from maestro.installation.keys import SecretKeys
from maestro.intake.webhooks import WebhookIntake
from maestro.operations.background import ScheduleOperations
from maestro.operations.jobs import JobOperations, TemporalAddress
from maestro.settings.addresses import endpoint_of, temporal_ui_url
from maestro.settings.live import LiveSettings
from maestro.store.store import Store
from temporal.client import connect_soon
from temporal.engine import Engine
from temporal.replays import BatchWork, ClientSource, workflow_interrupter

CONNECT_SECONDS = 3.0


def build_schedule_operations(store: Store, live: LiveSettings) -> ScheduleOperations:
    return ScheduleOperations(store, live.of(lambda settings: settings.schedules), queues(live.start).main)


def build_intake(store: Store, keys: SecretKeys, live: LiveSettings) -> WebhookIntake:
    return WebhookIntake(
        store, keys.reveal, live.of(lambda settings: settings.webhooks), live.of(lambda settings: settings.jobs)
    )


def build_batch_work(store: Store, engine: Engine, wake: Callable[[], None]) -> BatchWork:
    """Return the service that starts the jobs of batches; ``wake`` notifies the dispatcher of this process, if any."""
    return BatchWork(store, workflow_interrupter(engine.current_client), wake)


def build_job_operations(
    store: Store, live: LiveSettings, client: ClientSource, wake: Callable[[], None]
) -> JobOperations:
    """Return the operations on jobs; ``wake`` notifies the dispatcher of this process, if it has one."""
    budgets = live.of(lambda settings: settings.budgets)
    address = TemporalAddress(temporal_ui_url(live.start), live.start.temporal.namespace)
    return JobOperations(store, workflow_interrupter(client), wake, address, lambda: budgets().cheaper_model)


def build_operator(store: Store, live: LiveSettings) -> JobOperations:
    """Return the operations on jobs for commands beside a running Maestro, whose dispatcher finds changed jobs."""
    endpoint = endpoint_of(live.start)
    return build_job_operations(store, live, lambda: connect_soon(endpoint, CONNECT_SECONDS), lambda: None)
