"""Serves the API and the dashboard on their port."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from importlib import import_module

import structlog
from starlette.types import ASGIApp

from api.parts import AgentChat, ApiParts, GuardSettings
from maestro.bootstrap.operations import open_hooks, open_schedules
from maestro.bootstrap.rules import daily_budgets, pairing_rules
from maestro.bootstrap.tools import names_of
from maestro.chat import ChatService
from maestro.domain.health import Vitals
from maestro.domain.jobs.replay import JobControl
from maestro.domain.proxies import TrustedProxies
from maestro.domain.release import release
from maestro.importing import collector_off
from maestro.installation.keys import open_keys
from maestro.installation.storage import signing_key
from maestro.operations.accounts import AccountOperations
from maestro.operations.batches import BatchOperations
from maestro.operations.connectors import ConnectorOperations
from maestro.operations.conversations import ConversationOperations
from maestro.operations.skill_folder import SkillFolder
from maestro.operations.skills import SkillOperations
from maestro.operations.webhooks import WebhookOperations
from maestro.serving import ListenAddress, Server, listen, serve_until_cancelled, uvicorn_config
from maestro.settings import Settings, read_environment
from maestro.settings.accounts import account_columns
from maestro.settings.addresses import connection_limits, temporal_ui_url
from maestro.settings.control import StoreSettingsControl
from maestro.settings.live import LiveSettings
from maestro.store.store import Store
from maestro.tools.outside import OutsideTools

log = structlog.get_logger(__name__)


async def at_once() -> None:
    """Wait for nothing."""


class ApiServer:
    """Listens from the start: a taken port is known before anything else begins, and a request waits to be served."""

    def __init__(self, settings: Settings, parts: ApiParts) -> None:
        self._place = ListenAddress(settings.webui.host, settings.webui.port, section="webui", option="--port")
        self._limits = connection_limits(settings)
        self._parts = parts
        self._serving = asyncio.Event()

    async def started(self) -> None:
        """Return once requests are answered."""
        await self._serving.wait()

    async def run(self, turn: Callable[[], Awaitable[None]] = at_once) -> None:
        """Serve until cancelled, once ``turn`` has returned.

        Raises ``PortTaken`` or ``ConfigurationError`` when the port cannot be had.
        """
        sockets = await asyncio.to_thread(listen, self._place)
        warn_if_open(self._parts.guard)
        with ExitStack() as bound:
            for one in sockets:
                bound.callback(one.close)
            await turn()
            options = uvicorn_config(await asyncio.to_thread(_built_app, self._parts), self._limits)
            await serve_until_cancelled(Server(options, self._announce, self._close), sockets)

    async def _announce(self) -> None:
        self._serving.set()

    def _close(self) -> None:
        if self._parts.outside is not None:
            self._parts.outside.close()


def warn_if_open(guard: GuardSettings) -> None:
    """Warn at the start, before the application is imported, that no password is set."""
    if guard.is_open:
        log.warning(
            "security: no password is set, so everybody who reaches this port from this machine is the operator; "
            "set webui.password or MAESTRO_WEBUI_PASSWORD"
        )


def _built_app(parts: ApiParts) -> ASGIApp:
    """Import the application and build it.

    Imported by name in a function because its two hundred routes take a quarter of the CPU time of all that
    ``maestro up`` imports of its own, and no message needs them: the first one is answered that much sooner.
    """
    with collector_off():
        build_app: Callable[[ApiParts], ASGIApp] = import_module("api.app").build_app
    return build_app(parts)


def api_parts(
    live: LiveSettings, store: Store, chat: ChatService | None, control: JobControl, vitals: Vitals
) -> ApiParts:
    """Return what the API is made of; who knows that the built-in model answers has to add it."""
    settings = live.start
    webui, keys = settings.webui, open_keys(settings, read_environment())
    return ApiParts(
        store=store,
        control=control,
        batches=BatchOperations(store),
        accounts=AccountOperations(store, keys.keep, account_columns),
        connectors=ConnectorOperations(store, keys.keep),
        conversations=ConversationOperations(store, settings.data_dir),
        schedules=open_schedules(store, live),
        webhooks=WebhookOperations(store, keys.keep),
        hooks=open_hooks(store, keys, live),
        settings=StoreSettingsControl(store, live),
        skills=SkillOperations(store, SkillFolder(settings.skills.folder), names_of(live)),
        guard=GuardSettings(
            signing_key=signing_key(settings),
            password=webui.password.get_secret_value(),
            viewer_password=webui.viewer_password.get_secret_value(),
            session_hours=webui.session_hours,
            allowed_hosts=frozenset({webui.host, *webui.allowed_hosts}),
            trusted_proxies=TrustedProxies.of(webui.trusted_proxies),
        ),
        health=vitals.health,
        metrics=vitals.metrics,
        version=release(),
        web_port=settings.web.port if settings.web.enabled else 0,
        temporal_ui_url=temporal_ui_url(settings),
        namespace=settings.temporal.namespace,
        pairing=live.of(pairing_rules),
        budgets=live.of(daily_budgets),
        outside=OutsideTools(store, chat, live.of(lambda settings: settings.questions)),
        chat=AgentChat(chat, live.of(lambda settings: settings.chat)) if chat is not None else None,
    )
