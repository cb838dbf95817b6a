"""``maestro api``: the process that serves the dashboard and the REST API, and the functions that build both."""

import asyncio
from dataclasses import replace

from api.parts import AgentChat, ApiParts, GuardSettings, PayloadCoding
from api.server import ApiServer
from maestro.bootstrap.flow import (
    build_batch_work,
    build_intake,
    build_job_operations,
    build_schedule_operations,
    task_queue_names,
)
from maestro.bootstrap.process import SeparateProcess
from maestro.bootstrap.tools import build_chat, build_redaction, tool_names
from maestro.chat import ChatService
from maestro.domain.health import ProcessHealth
from maestro.domain.network import TrustedProxies
from maestro.domain.redaction import TextKind
from maestro.domain.release import release
from maestro.installation.data_folder import open_keys, signing_key
from maestro.installation.storage import has_no_account, open_files
from maestro.observability.health import EngineHealth, process_metrics, remote_worker_check
from maestro.operations.accounts import AccountOperations
from maestro.operations.background import WebhookOperations
from maestro.operations.connectors import ConnectorOperations
from maestro.operations.conversations import ConversationOperations
from maestro.operations.jobs import BatchOperations, JobOperations
from maestro.operations.settings import SettingsOperations
from maestro.operations.skills import SkillFolder, SkillOperations
from maestro.serving import ListenAddress
from maestro.settings import Settings, read_environment
from maestro.settings.accounts import account_columns
from maestro.settings.addresses import connection_limits, temporal_endpoint, temporal_ui_origins
from maestro.settings.control import EffectiveSettings
from maestro.settings.live import LiveSettings
from maestro.store.store import Store
from maestro.supervision import Services
from maestro.tools.chat import OutsideTools
from temporal.codec import PayloadService
from temporal.engine import Engine


def api_parts(
    live: LiveSettings, store: Store, chat: ChatService | None, jobs: JobOperations, health: ProcessHealth
) -> ApiParts:
    """Return the dependencies of the API; the caller sets ``demo`` to whether the demo model answers."""
    settings = live.start
    webui, keys = settings.webui, open_keys(settings, read_environment())
    return ApiParts(
        store=store,
        payloads=build_payload_coding(settings),
        jobs=jobs,
        batches=BatchOperations(store),
        accounts=AccountOperations(store, keys.stored_form, account_columns),
        connectors=ConnectorOperations(store, keys.stored_form),
        conversations=ConversationOperations(store, settings.data_dir, open_files(settings)),
        schedules=build_schedule_operations(store, live),
        webhooks=WebhookOperations(store, keys.stored_form),
        hooks=build_intake(store, keys, live),
        settings=SettingsOperations(store, EffectiveSettings(live)),
        skills=SkillOperations(store, SkillFolder(settings.skills.folder), tool_names(live)),
        guard=GuardSettings(
            signing_key=signing_key(settings),
            password=webui.password.get_secret_value(),
            viewer_password=webui.viewer_password.get_secret_value(),
            session_hours=webui.session_hours,
            allowed_hosts=frozenset({webui.host, *webui.allowed_hosts}),
            trusted_proxies=TrustedProxies(webui.trusted_proxies),
        ),
        health=health.health,
        metrics=health.metrics,
        version=release(),
        web_port=settings.web.port if settings.web.enabled else 0,
        pairing=live.of(lambda settings: settings.pairing),
        budgets=live.of(lambda settings: settings.budgets),
        outside=OutsideTools(store, chat, live.of(lambda settings: settings.questions)),
        chat=AgentChat(chat, live.of(lambda settings: settings.chat)) if chat is not None else None,
    )


def build_payload_coding(settings: Settings) -> PayloadCoding | None:
    """Return the encryption for the codec endpoint; None without keys."""
    keys = settings.temporal.codec.key_bytes
    if not keys:
        return None
    service = PayloadService(keys)
    namespace, origins = settings.temporal.namespace, temporal_ui_origins(settings)
    return PayloadCoding(service.encrypt, service.decrypt, namespace, origins)


def build_server(settings: Settings, parts: ApiParts) -> ApiServer:
    address = ListenAddress(settings.webui.host, settings.webui.port, section="webui", option="--port")
    return ApiServer(address, connection_limits(settings), parts)


class Api(SeparateProcess):
    """The process of the dashboard and the REST API; dispatchers in other processes start the replayed jobs."""

    command = "api"

    async def work(self, store: Store, stop: asyncio.Event) -> None:
        """Serve until the event is set, also while Temporal is unreachable."""
        engine = Engine(temporal_endpoint(self.settings), self.say)
        jobs = build_job_operations(store, self.live, engine.current_client, lambda: None)
        metrics = await asyncio.to_thread(process_metrics, store, self.live, self.command, engine)
        queues = task_queue_names(self.settings)
        working = remote_worker_check(engine, queues.main, queues.tools)
        health = ProcessHealth(EngineHealth(store, engine, working), metrics)
        demo = await asyncio.to_thread(has_no_account, store)
        scope = build_redaction(self.live, metrics.count_failed_scan)
        chat = build_chat(self.live, store, scope.scanner)
        parts = replace(
            api_parts(self.live, store, chat, jobs, health), demo=demo, redact=scope.current_redaction(TextKind.MEMORY)
        )
        server = build_server(self.settings, parts)
        services = Services(stop)
        services.add_services(server.run(), engine.run(), build_batch_work(store, engine, lambda: None).run())
        await services.until_stopped(self._announce_start(server), engine.drain_workers)

    async def _announce_start(self, server: ApiServer) -> None:
        await server.wait_until_started()
        webui = self.settings.webui
        self.say(f"The API is ready: http://{webui.host}:{webui.port}")
