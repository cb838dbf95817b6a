"""``maestro worker``: runs workflows, steps and model calls (docs/architecture.md: processes and queues)."""

import asyncio
from functools import partial

from maestro.bootstrap.flow import (
    FlowParts,
    ModelParts,
    build_batch_work,
    build_versions,
    flow_parts,
    run_settings,
    task_queue_names,
    worker_parts,
)
from maestro.bootstrap.maintenance import build_maintenance
from maestro.bootstrap.models import Models, begin_library_import, build_models
from maestro.bootstrap.process import Process, Say, SeparateProcess
from maestro.bootstrap.tools import build_chat, build_tools
from maestro.domain.health import ProcessHealth
from maestro.llm.litellm_client import LiteLLMLibrary
from maestro.observability.health import EngineHealth, HealthServer, build_worker_check, health_address, process_metrics
from maestro.operations.skills import load_skills
from maestro.settings import Loaded, read_environment
from maestro.settings.addresses import connection_limits, temporal_endpoint
from maestro.store.store import Store
from maestro.supervision import ReadySignals, Service, Services
from temporal.dispatcher import Dispatcher
from temporal.engine import Engine
from temporal.reconciler import Reconciler
from temporal.schedule_keeper import ScheduleKeeper


class ModelProcess(Process):
    """A process that calls models; it imports the library for model calls while it opens the store."""

    library: LiteLLMLibrary

    def prepare(self) -> None:
        """Begin to import the library that calls models."""
        self.library = begin_library_import(self.live, read_environment())

    def build_models(self, store: Store) -> Models:
        """Store the configured accounts, and return the parts with which this process calls models."""
        return build_models(self.live, read_environment(), store, self.library)

    async def build_services(
        self, flow: FlowParts, parts: ModelParts, engine: Engine, dispatcher: Dispatcher, ready: ReadySignals
    ) -> list[Service]:
        """Return the services that process jobs; skills are stored first, because the first message may need one."""
        store, settings = flow.store, self.settings
        skills = await load_skills(store, settings.skills.folder, settings.skills.look_seconds)
        reconciler = Reconciler(store, lambda: self.live.current().jobs.reconcile_seconds, dispatcher.check_soon)
        engine.on_divergence = reconciler.check_soon
        if engine.versions is not None:
            dispatcher.may_run_here = engine.versions.begins_jobs
        keeper = ScheduleKeeper(store, self.live.of(run_settings), self.live.of(lambda settings: settings.schedules))
        return [
            parts.tools.keep_sources_open(),
            skills.watch_files(),
            engine.run(dispatcher.run, reconciler.run, keeper.run, engine.run_versions(ready.expect_part())),
            *(engine.run_worker(worker, ready.expect_part()) for worker in worker_parts(flow, self.live, parts)),
            build_batch_work(store, engine, dispatcher.check_soon).run(),
        ]


class Worker(ModelProcess, SeparateProcess):
    """The separate process that calls models; any number of workers may run side by side."""

    command = "worker"

    def __init__(self, loaded: Loaded, say: Say, *, promote: bool = False) -> None:
        """With ``promote``, new jobs begin with the release of this worker once it polls."""
        super().__init__(loaded, say)
        self._promote = promote

    async def work(self, store: Store, stop: asyncio.Event) -> None:
        """Poll the queues of workflows and of model calls, start jobs, and compare open jobs with Temporal."""
        models = await asyncio.to_thread(self.build_models, store)
        dispatcher = self.build_dispatcher(store)
        versions = build_versions(self.settings, self.say, promote=self._promote)
        engine = Engine(temporal_endpoint(self.settings), self.say, versions)
        metrics = await asyncio.to_thread(process_metrics, store, self.live, self.command, engine)
        vitals = ProcessHealth(EngineHealth(store, engine, build_worker_check(engine)), metrics)
        flow = flow_parts(
            store, self.live, dispatcher.check_after_release, metrics.count_step, metrics.count_failed_scan
        )
        brains = ModelParts(models, build_tools(self.live, build_chat(self.live, store, flow.scope.scanner)))
        services, begun = Services(stop), ReadySignals()
        flow_services = await self.build_services(flow, brains, engine, dispatcher, begun)
        address, hosts = health_address(self.settings, "workerPort"), self.settings.webui.allowed_hosts
        health = HealthServer(address, hosts, vitals, connection_limits(self.settings))
        services.add_services(health.run(), *flow_services, *build_maintenance(store, self.live, metrics))
        try:
            await services.until_stopped(self._announce_start(begun, models), partial(self.drain, engine, dispatcher))
        finally:
            await models.close()

    async def _announce_start(self, ready: ReadySignals, models: Models) -> None:
        await ready.wait_until_ready()
        names = task_queue_names(self.settings)
        self.say(f"The worker is ready. It polls {names.main} and {names.llm}.")
        self.say(models.announcement)
