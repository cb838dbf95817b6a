"""Composes the connectors of a process."""

import hashlib
from collections.abc import Collection, Sequence
from functools import partial

from connectors.base import Connector
from connectors.web import WebConfig, WebConnector
from maestro.bootstrap.rules import intake_rules
from maestro.connector_runtime.context import StoreContext
from maestro.connector_runtime.factory import ConnectorFactory
from maestro.connector_runtime.host import ConnectorHost
from maestro.connector_runtime.keeper import BotKeeper
from maestro.installation.keys import open_keys, signing_key
from maestro.installation.storage import open_files, upload_folder
from maestro.intake import Intake
from maestro.settings import Settings, is_loopback, read_environment
from maestro.settings.addresses import connection_limits, dashboard_origins
from maestro.settings.live import LiveSettings
from maestro.store.store import Store
from temporal.dispatcher import Dispatcher


def build_context(
    live: LiveSettings, store: Store, dispatcher: Dispatcher, platform: str, account: str
) -> StoreContext:
    """Return the context of a connector; ``dispatcher`` is notified of each job that an incoming message creates."""
    intake = Intake(store, live.of(intake_rules), dispatcher.wake, dispatcher)
    return StoreContext((platform, account), intake, store, open_files(live.start))


def build_bots(
    live: LiveSettings,
    store: Store,
    dispatcher: Dispatcher,
    host: ConnectorHost,
    platforms: Collection[str] | None = None,
) -> BotKeeper:
    """Return the keeper that runs the bots of ``platforms``, or of all platforms for None."""
    factory = ConnectorFactory.of(live.start, open_keys(live.start, read_environment()))
    return BotKeeper(store, factory, partial(build_context, live, store, dispatcher), host.run_bot, platforms)


def configured_connectors(settings: Settings, context: StoreContext) -> Sequence[Connector]:
    """Return the connectors that run for the whole life of a process: the web connector, if enabled."""
    return [WebConnector(web_config(settings), context)] if settings.web.enabled else []


def web_config(settings: Settings) -> WebConfig:
    """Return the configuration of the web connector (docs/decisions.md: web identity)."""
    web, webui = settings.web, settings.webui
    needs_no_login = not web.api_key and not webui.password and is_loopback(web.host)
    return WebConfig(
        signing_key=signing_key(settings),
        host=web.host,
        port=web.port,
        api_key=web.api_key.get_secret_value(),
        local_owner=needs_no_login,
        password_digest=hashlib.sha256(webui.password.get_secret_value().encode()).digest(),
        owner_hours=webui.session_hours,
        allowed_origins=web.allowed_origins,
        dashboard_origins=dashboard_origins(settings),
        allowed_hosts=webui.allowed_hosts,
        max_frame_bytes=web.max_frame_bytes,
        max_upload_bytes=web.max_upload_bytes,
        upload_dir=upload_folder(settings),
        auth_timeout=web.auth_timeout_seconds,
        typing_interval=web.typing_seconds,
        connections=connection_limits(settings),
    )
