"""The class ``Settings``: a frozen section for each part of Maestro, each key with default, unit and meaning."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from maestro.domain.settings.entries import AgentSettings, ChannelSettings, ClientSettings
from maestro.domain.settings.jobs import (
    ChatSettings,
    ConductorSettings,
    JobSettings,
    MemorySettings,
    PairingSettings,
    QuestionSettings,
    RoutingSettings,
    ScheduleSettings,
    SessionSettings,
    SkillSettings,
    ToolSettings,
    WebhookSettings,
)
from maestro.domain.settings.llm import BudgetSettings, LlmSettings
from maestro.domain.settings.process import (
    HealthSettings,
    KeySettings,
    LogSettings,
    MediaSettings,
    OwnerSettings,
    ServerSettings,
    StoreSettings,
    TemporalSettings,
    WebSettings,
    WebuiSettings,
)
from maestro.domain.settings.section import Folder, Section, setting, unique
from maestro.domain.settings.telemetry import RetentionSettings, TelemetrySettings
from maestro.settings.connectors import ConnectorSettings, check_unique_bots


class Settings(Section):
    """All settings of Maestro."""

    data_dir: Folder = setting(Path("data"), "the folder for all data of Maestro, relative to the working directory")
    store: StoreSettings = StoreSettings()
    media: MediaSettings = MediaSettings()
    keys: KeySettings = KeySettings()
    temporal: TemporalSettings = TemporalSettings()
    webui: WebuiSettings = WebuiSettings()
    web: WebSettings = WebSettings()
    server: ServerSettings = ServerSettings()
    health: HealthSettings = HealthSettings()
    owner: OwnerSettings = OwnerSettings()
    agents: Annotated[
        tuple[AgentSettings, ...], unique(lambda agent: agent.slug, "two agents have the slug {}; rename one")
    ] = setting((AgentSettings(slug="conductor", role="conductor"),), "the agents that answer")
    channels: Annotated[
        tuple[ChannelSettings, ...],
        unique(
            lambda bound: (bound.platform, bound.account, bound.channel),
            "the channel {} is bound twice; keep one binding",
        ),
    ] = setting((), "channels that are bound to an agent")
    clients: Annotated[
        tuple[ClientSettings, ...],
        unique(lambda client: client.name, "two clients have the name {}; rename one"),
        unique(lambda client: client.slug, "two clients have the slug {}; change one"),
    ] = setting((), "clients that pay for answers; agents and channels may name a client")
    connectors: Annotated[ConnectorSettings, AfterValidator(check_unique_bots)] = ConnectorSettings()
    llm: LlmSettings = LlmSettings()
    budgets: BudgetSettings = BudgetSettings()
    tools: ToolSettings = ToolSettings()
    questions: QuestionSettings = QuestionSettings()
    jobs: JobSettings = JobSettings()
    schedules: ScheduleSettings = ScheduleSettings()
    webhooks: WebhookSettings = WebhookSettings()
    logs: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    retention: RetentionSettings = RetentionSettings()
    routing: RoutingSettings = RoutingSettings()
    pairing: PairingSettings = PairingSettings()
    conductor: ConductorSettings = ConductorSettings()
    memory: MemorySettings = MemorySettings()
    skills: SkillSettings = SkillSettings()
    chat: ChatSettings = ChatSettings()
    session: SessionSettings = SessionSettings()

    @property
    def database(self) -> Path | str:
        """The location of the database: the URL of PostgreSQL, or the path of a SQLite file."""
        url = self.store.url.get_secret_value()
        if url.startswith("postgres"):
            return url
        return Path(url.removeprefix("sqlite:///")) if url else self.data_dir / "maestro.db"

    @property
    def spool(self) -> Path:
        """The folder of this host for answers that cannot be written to the database; beside a SQLite file."""
        return (self.database.parent if isinstance(self.database, Path) else self.data_dir) / "answers"
