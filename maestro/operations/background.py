"""The operations on schedules and webhooks, which start background jobs."""

import base64
import secrets
from collections.abc import Callable

from pydantic import Field, SecretStr

from maestro.domain.errors import InvalidEdit
from maestro.domain.llm.accounts import REFERENCES, StoredKey
from maestro.domain.schedules.edits import BackfillRequest, NewScheduleOfKind, ScheduleChange, SchedulePreviewRequest
from maestro.domain.schedules.views import (
    BackfillView,
    ScheduleFilter,
    SchedulePage,
    SchedulePreview,
    ScheduleView,
    StartedRun,
    preview_view,
)
from maestro.domain.settings.jobs import ScheduleSettings
from maestro.domain.webhooks.webhook import (
    KEY_PREFIX,
    NewWebhook,
    SecretRotation,
    SignatureScheme,
    WebhookChange,
    WebhookPage,
    WebhookView,
    WebhookWithSecret,
    checked_secret,
)
from maestro.operations.inputs import LIMIT, EncryptSecret, Limit
from maestro.store.store import Store


class ScheduleQuery(ScheduleFilter):
    """A filter of schedules and the page of its result to return; ``cursor`` is the ``next`` of the previous page."""

    limit: int = Field(default=LIMIT, ge=1, le=1000)
    cursor: str | None = None


class ScheduleOperations:
    """The operations on stored schedules, which Maestro copies to Temporal; an unknown ref raises ``NotFound``."""

    def __init__(self, store: Store, settings: Callable[[], ScheduleSettings], main_queue: str) -> None:
        """``main_queue``, the name of a Temporal task queue, is the prefix of the job ids of backfill runs."""
        self._store = store
        self._settings = settings
        self._main_queue = main_queue

    def list(self, query: ScheduleQuery) -> SchedulePage:
        """List the schedules with their next and last runs: first heartbeats, then crons, each from the oldest on."""
        with self._store.view() as tx:
            found = tx.background.schedules.list_schedule_page(query, query.cursor, query.limit + 1)
        more = len(found) > query.limit
        return SchedulePage(items=tuple(found[: query.limit]), next=found[query.limit - 1].ref if more else None)

    def show(self, ref: str) -> ScheduleView:
        """Return a schedule by its ref, such as ``cron-3``."""
        with self._store.view() as tx:
            return tx.background.schedules.build_schedule_view(tx.background.schedules.get(ref))

    def add(self, new: NewScheduleOfKind, actor: str) -> ScheduleView:
        """Add a schedule; its first run is at its next due time. 409 when the agent has a schedule of this name."""
        with self._store.begin() as tx:
            return tx.background.schedules.build_schedule_view(
                tx.background.schedules.add_schedule(new.kind.table, new, actor, self._settings().shortest)
            )

    def change(self, ref: str, change: ScheduleChange, actor: str) -> ScheduleView:
        """Change the given fields of a schedule; ``enabled`` pauses or resumes it, whatever paused it before."""
        with self._store.begin() as tx:
            planned = tx.background.schedules.change_schedule(
                tx.background.schedules.get(ref), change, actor, self._settings().shortest
            )
            return tx.background.schedules.build_schedule_view(planned)

    def remove(self, ref: str, actor: str) -> None:
        """Remove a schedule; the jobs that the schedule started stay."""
        with self._store.begin() as tx:
            tx.background.schedules.remove_schedule(tx.background.schedules.get(ref), actor)

    def preview(self, request: SchedulePreviewRequest) -> SchedulePreview:
        """Return the next five run times of a schedule in its time zone, without storing the schedule."""
        with self._store.view() as tx:
            return preview_view(request, tx.now, self._settings().shortest)

    def run_now(self, ref: str, actor: str) -> StartedRun:
        """Start a run of a schedule, even a paused one; 409 while a run is open or the agent is not active."""
        with self._store.begin() as tx:
            return StartedRun(job_id=tx.background.runs.run_now(tx.background.schedules.get(ref), actor))

    def backfill(self, ref: str, request: BackfillRequest, actor: str) -> BackfillView:
        """Start a run for each missed time; raises ``Conflict`` as ``run_now``, and ``InvalidEdit`` above 100 times."""
        with self._store.begin() as tx:
            planned = tx.background.schedules.get(ref)
            return tx.background.runs.begin_backfill_runs(planned, request, f"{self._main_queue}-{planned.ref}", actor)


class WebhookOperations:
    """The operations on webhooks; an unknown path raises ``NotFound``."""

    def __init__(self, store: Store, encrypt: EncryptSecret) -> None:
        self._store = store
        self._encrypt = encrypt

    def list(self, limit: Limit = LIMIT, cursor: str | None = None) -> WebhookPage:
        """List the webhooks by path, with counts of deliveries; ``cursor`` is the last path of the previous page."""
        with self._store.view() as tx:
            found = tx.background.webhooks.list_webhook_page(cursor, limit + 1)
        return WebhookPage(items=tuple(found[:limit]), next=found[limit - 1].path if len(found) > limit else None)

    def show(self, path: str) -> WebhookView:
        """Return the webhook with this path."""
        with self._store.view() as tx:
            return tx.background.webhooks.build_webhook_view(tx.background.webhooks.get(path))

    def add(self, new: NewWebhook, actor: str) -> WebhookWithSecret:
        """Create a webhook; only this response shows a generated secret. 409 when another webhook has the path."""
        stored, generated = self._stored_secret(new.scheme, new.secret)
        with self._store.begin() as tx:
            webhook = tx.background.webhooks.create_webhook(new, stored, actor)
            return WebhookWithSecret.from_row(tx.background.webhooks.build_webhook_view(webhook), secret=generated)

    def change(self, path: str, change: WebhookChange, actor: str) -> WebhookView:
        """Change the given fields of a webhook."""
        with self._store.begin() as tx:
            return tx.background.webhooks.build_webhook_view(
                tx.background.webhooks.change_webhook(tx.background.webhooks.get(path), change, actor)
            )

    def remove(self, path: str, actor: str) -> None:
        """Remove a webhook; the jobs that the webhook started stay."""
        with self._store.begin() as tx:
            tx.background.webhooks.remove_webhook(tx.background.webhooks.get(path), actor)

    def rotate(self, path: str, actor: str, rotation: SecretRotation | None = None) -> WebhookWithSecret:
        """Replace a webhook's secret by the given or a generated one; signatures of the old secret become invalid."""
        with self._store.begin() as tx:
            webhook = tx.background.webhooks.get(path)
            stored, generated = self._stored_secret(webhook.scheme, (rotation or SecretRotation()).secret)
            tx.background.webhooks.rotate_key(webhook, stored, actor)
            return WebhookWithSecret.from_row(tx.background.webhooks.build_webhook_view(webhook), secret=generated)

    def _stored_secret(self, scheme: SignatureScheme, given: SecretStr) -> tuple[StoredKey, str]:
        """Return a secret in stored form, and its plain text if it is generated here, else an empty text."""
        text = given.get_secret_value().strip()
        if text.startswith(REFERENCES):
            return self._encrypt(text), ""
        secret = text or KEY_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
        try:
            stored = self._encrypt(checked_secret(scheme, secret))
        except ValueError as error:
            raise InvalidEdit(f"secret: {error}") from None
        return stored, "" if text else secret
