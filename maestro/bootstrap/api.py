"""``maestro api``: the dashboard and the REST API in a process of their own."""

import asyncio
from dataclasses import replace

from maestro.bootstrap.api_server import ApiServer, api_parts
from maestro.bootstrap.operations import build_batch_work
from maestro.bootstrap.process import SeparateProcess
from maestro.bootstrap.redaction import RedactionScope, build_chat
from maestro.domain.health import Vitals
from maestro.domain.llm.accounts import DEMO
from maestro.domain.redaction import TextKind
from maestro.observability.health import EngineHealth, process_metrics, workers_elsewhere
from maestro.settings.addresses import endpoint_of
from maestro.store.store import Store
from maestro.supervision import Services
from temporal.engine import Engine
from temporal.replays import TemporalJobControl


class Api(SeparateProcess):
    """Serves operators; jobs that it replays are found by the dispatchers of other processes."""

    command = "api"

    async def work(self, store: Store, stop: asyncio.Event) -> None:
        """Serve until the event is set; Temporal may come and go meanwhile."""
        engine = Engine(endpoint_of(self.settings), self.say)
        control = TemporalJobControl(store, engine.present, wake=lambda: None)
        metrics = await asyncio.to_thread(process_metrics, store, self.live, self.command)
        working = workers_elsewhere(engine, self.settings.temporal.task_queue)
        vitals = Vitals(EngineHealth(store, engine, working), metrics)
        demo = await asyncio.to_thread(_has_no_account, store)
        scope = RedactionScope.built(self.live, metrics.scan_failed)
        chat = build_chat(self.live, store, scope.scanner)
        parts = replace(api_parts(self.live, store, chat, control, vitals), demo=demo, redact=scope.of(TextKind.MEMORY))
        server = ApiServer(self.settings, parts)
        services = Services(stop)
        services.add(server.run(), engine.run(), build_batch_work(store, engine, lambda: None).run())
        await services.until_stopped(self._announce(server), engine.drain)

    async def _announce(self, server: ApiServer) -> None:
        await server.started()
        webui = self.settings.webui
        self.say(f"The API is ready: http://{webui.host}:{webui.port}")


def _has_no_account(store: Store) -> bool:
    with store.view() as tx:
        return tx.llm.accounts.default_model() == DEMO
