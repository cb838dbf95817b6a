"""``maestro worker``: workflows, local steps and model calls, beside other processes.

See docs/architecture.md: processes and queues.
"""

import asyncio

from maestro.bootstrap.flow import ModelParts, flow_parts, queues, run_settings, worker_parts
from maestro.bootstrap.models import Models, begin_library, build_models
from maestro.bootstrap.operations import build_batch_work, build_keeper
from maestro.bootstrap.process import SeparateProcess
from maestro.bootstrap.rules import build_chat
from maestro.bootstrap.tools import build_tools
from maestro.domain.health import ProcessHealth
from maestro.llm.litellm_client import LiteLLMLibrary
from maestro.observability.health import EngineHealth, HealthServer, own_workers, process_metrics, worker_address
from maestro.operations.skill_folder import load_skills
from maestro.settings import read_environment
from maestro.settings.addresses import connection_limits, endpoint_of
from maestro.store.store import Store
from maestro.supervision import ReadySignals, Services
from temporal.dispatcher import Dispatcher
from temporal.engine import Engine
from temporal.reconciler import Reconciler


class Worker(SeparateProcess):
    """The only kind of process that calls models; any number of them may work side by side."""

    command = "worker"

    library: LiteLLMLibrary

    def prepare(self) -> None:
        """Begin to import the library that calls models."""
        self.library = begin_library(self.live, read_environment())

    def build_models(self, store: Store) -> Models:
        """Return the models; touches the store."""
        return build_models(self.live, read_environment(), store, self.library)

    async def work(self, store: Store, stop: asyncio.Event) -> None:
        """Poll the queues of workflows and of model calls, start jobs, and compare open ones with Temporal."""
        models = await asyncio.to_thread(self.build_models, store)
        skills = await load_skills(store, self.settings.skills.folder, self.settings.skills.look_seconds)
        dispatcher = Dispatcher(store, queues(self.settings), self.live.of(run_settings), self.say)
        engine = Engine(endpoint_of(self.settings), self.say)
        reconciler = Reconciler(store, lambda: self.live.current().jobs.reconcile_seconds, dispatcher.wake)
        metrics = await asyncio.to_thread(process_metrics, store, self.live, self.command)
        vitals = ProcessHealth(EngineHealth(store, engine, own_workers(engine)), metrics)
        flow = flow_parts(store, self.live, dispatcher.released, metrics.step, metrics.scan_failed)
        brains = ModelParts(models, build_tools(self.live, build_chat(self.live, store, flow.scope.scanner)))
        services, begun = Services(stop), ReadySignals()
        place, hosts = worker_address(self.settings), self.settings.webui.allowed_hosts
        services.add(HealthServer(place, hosts, vitals, connection_limits(self.settings)).run())
        keeper = build_keeper(store, self.live)
        services.add(brains.tools.serve(), skills.watch(), engine.run(dispatcher.run, reconciler.run, keeper.run))
        services.add(*(engine.work(parts, begun.another()) for parts in worker_parts(flow, self.live, brains)))
        services.add(build_batch_work(store, engine, dispatcher.wake).run())

        async def drain() -> None:
            self.say("Stopping: what runs may finish.")
            dispatcher.pause()
            await engine.drain()

        try:
            await services.until_stopped(self._announce(begun, models), drain)
        finally:
            await models.close()

    async def _announce(self, begun: ReadySignals, models: Models) -> None:
        await begun.wait()
        names = queues(self.settings)
        self.say(f"The worker is ready. It polls {names.main} and {names.llm}.")
        self.say(models.announcement)
