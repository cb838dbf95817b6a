"""The API over a store, without Temporal: what an operator does is written to the store for a dispatcher to find."""

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from api.app import build_app
from api.parts import ApiParts, GuardSettings
from maestro.bootstrap.flow import build_intake, build_schedule_operations
from maestro.installation.data_folder import SecretKeys
from maestro.metrics.process import ProcessMetrics
from maestro.operations.accounts import AccountOperations
from maestro.operations.background import WebhookOperations
from maestro.operations.connectors import ConnectorOperations
from maestro.operations.conversations import ConversationOperations
from maestro.operations.jobs import BatchOperations, JobLinks, JobOperations
from maestro.operations.settings import SettingsOperations
from maestro.operations.skills import SkillFolder, SkillOperations
from maestro.settings import Settings
from maestro.settings.accounts import account_columns
from maestro.settings.control import EffectiveSettings
from maestro.settings.live import LiveSettings
from maestro.store.files import MediaFolder
from tests.support.job_rows import JobRows
from tests.support.outside import outside_tools

PASSWORD = "correct horse battery staple"
BASIC = ("maestro", PASSWORD)
VIEWER_PASSWORD = "only to look at"
VIEWER = ("viewer", VIEWER_PASSWORD)
SIGNING_KEY = b"the signing key of the tests, 32"
ENCRYPTION_KEY = base64.urlsafe_b64encode(b"the key of the keys of the tests")
TEMPORAL_UI = "http://localhost:8233/"
HOME = "http://localhost:8080"
NO_FOLDER = Path("/nonexistent/skills")
OTHER_ADDRESS = "203.0.113.9"


class FixedHealth:
    """Says what it was told."""

    def __init__(self, **checks: str) -> None:
        self._checks = checks

    async def checks(self) -> Mapping[str, str]:
        """Return the checks."""
        return self._checks


def parts(rows: JobRows, password: str = PASSWORD, **changes: Any) -> ApiParts:
    """Return what an API is made of; ``changes`` are fields of ``ApiParts``."""
    keys, live = SecretKeys(ENCRYPTION_KEY, {}), LiveSettings.from_fixed(Settings())
    made = ApiParts(
        store=rows.store,
        jobs=JobOperations(rows.store, no_temporal, links=JobLinks(TEMPORAL_UI)),
        batches=BatchOperations(rows.store),
        accounts=AccountOperations(rows.store, keys.stored_form, account_columns),
        connectors=ConnectorOperations(rows.store, keys.stored_form),
        conversations=ConversationOperations(rows.store, NO_FOLDER, MediaFolder(NO_FOLDER)),
        settings=SettingsOperations(rows.store, EffectiveSettings(live)),
        schedules=build_schedule_operations(rows.store, live),
        webhooks=WebhookOperations(rows.store, keys.stored_form),
        hooks=build_intake(rows.store, keys, live),
        skills=SkillOperations(rows.store, SkillFolder(NO_FOLDER)),
        guard=GuardSettings(SIGNING_KEY, password, viewer_password=VIEWER_PASSWORD if password else ""),
        health=FixedHealth(store="ok", temporal="ok", worker="ok"),
        version="1.2.3",
        metrics=ProcessMetrics(rows.store, "api", max_pending=lambda: 10, clock=rows.clock),
        clock=rows.clock,
        outside=outside_tools(rows, chat=False),
    )
    return replace(made, **changes)


async def no_temporal(job_id: str) -> None:
    """Interrupt no workflow."""


@asynccontextmanager
async def client(app: FastAPI, address: str = "127.0.0.1", **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to an app as a program at this address; ``options`` are httpx's own."""
    transport = httpx.ASGITransport(app, client=(address, 50000))
    async with httpx.AsyncClient(transport=transport, **{"base_url": HOME, **options}) as http:
        yield http


def app_of(rows: JobRows, password: str = PASSWORD, **changes: Any) -> FastAPI:
    """Build the app over a store."""
    return build_app(parts(rows, password, **changes))
