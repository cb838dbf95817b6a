"""Serves the API and the dashboard on their port."""

import asyncio
from collections.abc import Mapping

from api.app import build_app
from api.parts import OK, ApiParts, GuardSettings
from maestro.bootstrap.endpoints import temporal_ui_url
from maestro.bootstrap.storage import signing_key
from maestro.domain.release import release
from maestro.domain.replay import JobControl
from maestro.serving import Place, Server, config, listen, serve_until_cancelled
from maestro.settings import Settings
from maestro.store.store import Store
from temporal.engine import Engine


class EngineHealth:
    """Says what works and what does not, one word or one sentence each."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine

    async def checks(self) -> Mapping[str, str]:
        """Return "ok" or the problem for the store, Temporal and the worker."""
        return {
            "store": await asyncio.to_thread(self._store.problem) or OK,
            "temporal": await self._engine.reachable() or OK,
            "worker": OK if self._engine.polling else "the worker does not poll yet",
        }


class ApiServer:
    """Listens from the start, so that a taken port is known before anything else begins."""

    def __init__(self, settings: Settings, parts: ApiParts) -> None:
        self._place = Place(settings.webui.host, settings.webui.port, section="webui", option="--port")
        self._parts = parts

    async def run(self) -> None:
        """Serve until cancelled; raises ``PortTaken`` or ``ConfigurationError`` when the port cannot be had."""
        sockets = await asyncio.to_thread(listen, self._place)
        await serve_until_cancelled(Server(config(build_app(self._parts))), sockets)


def api_parts(settings: Settings, store: Store, control: JobControl, health: EngineHealth, *, demo: bool) -> ApiParts:
    """Return what the API is made of."""
    webui = settings.webui
    return ApiParts(
        store=store,
        control=control,
        guard=GuardSettings(
            signing_key=signing_key(settings),
            password=webui.password.get_secret_value(),
            session_hours=webui.session_hours,
            allowed_hosts=frozenset({webui.host, *webui.allowed_hosts}),
        ),
        health=health,
        version=release(),
        web_port=settings.web.port if settings.web.enabled else 0,
        temporal_ui_url=temporal_ui_url(settings),
        namespace=settings.temporal.namespace,
        demo=demo,
    )
