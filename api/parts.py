"""The parts on which the routes and pages of the API depend, passed in by ``maestro.bootstrap``."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from maestro.chat import ChatService
from maestro.domain.health import Health, Metrics
from maestro.domain.network import TrustedProxies
from maestro.domain.redaction import Redact, keep_text
from maestro.domain.settings.jobs import ChatSettings, PairingSettings
from maestro.domain.settings.llm import BudgetSettings
from maestro.intake.webhooks import WebhookIntake
from maestro.operations.accounts import AccountOperations
from maestro.operations.agents import AgentOperations, BindingOperations, TokenOperations
from maestro.operations.background import ScheduleOperations, WebhookOperations
from maestro.operations.connectors import ConnectorOperations
from maestro.operations.conversations import ConversationOperations
from maestro.operations.jobs import BatchOperations, JobOperations
from maestro.operations.memory import MemoryOperations
from maestro.operations.people import ClientOperations, PeopleOperations
from maestro.operations.questions import QuestionOperations
from maestro.operations.reports import AuditOperations, UsageOperations
from maestro.operations.settings import SettingsOperations
from maestro.operations.skills import SkillOperations
from maestro.store.store import Clock, Store, utc_now
from maestro.tools.chat import OutsideTools


@dataclass(frozen=True)
class GuardSettings:
    """Settings for access to the dashboard and the API.

    ``signing_key`` signs login sessions. With an empty ``password`` every request has the rights of the operator, so
    the server must then listen on loopback only. ``viewer_password`` gives read-only access; if it is empty, there is
    no viewer. ``allowed_hosts`` are the host names, without a port, that browsers may use besides loopback; a wildcard
    address there admits every IP address. The forwarded headers of ``trusted_proxies`` are trusted.
    """

    signing_key: bytes = field(repr=False)
    password: str = field(default="", repr=False)
    viewer_password: str = field(default="", repr=False)
    session_hours: float = 12
    allowed_hosts: frozenset[str] = frozenset()
    trusted_proxies: TrustedProxies = field(default_factory=TrustedProxies)

    @property
    def is_open(self) -> bool:
        """Whether no password is set, so that every request to the port has the rights of the operator."""
        return not self.password


@dataclass(frozen=True)
class AgentChat:
    """The service of the agent chat (#maestro), and a function that returns the current chat settings."""

    service: ChatService
    rules: Callable[[], ChatSettings] = ChatSettings


RawPayload = tuple[Mapping[str, bytes], bytes]
"""The metadata and the data of one of Temporal's payloads."""


@dataclass(frozen=True)
class PayloadCoding:
    """The encryption of Temporal's payloads; ``decrypt`` raises ``EncryptionKeyMissing``.

    ``origins`` are the web origins of Temporal's Web UI, whose pages may call the codec endpoint.
    """

    encrypt: Callable[[Sequence[RawPayload]], Iterable[RawPayload]]
    decrypt: Callable[[Sequence[RawPayload]], Iterable[RawPayload]]
    namespace: str
    origins: frozenset[str] = frozenset()


@dataclass
class ApiParts:
    """Everything that the routes and pages of one application use.

    ``web_port`` is the port of the web connector for browsers, on the host of the dashboard; 0 if the web connector
    does not run. With ``demo`` the built-in model answers. ``outside`` are the tools of external agents, None without
    an MCP server; ``chat`` is None without an agent chat, ``payloads`` without encryption of Temporal's payloads.
    ``redact`` returns the function that removes secrets from facts and states. ``redact`` and ``budgets`` are called at
    each use.
    """

    store: Store
    jobs: JobOperations
    batches: BatchOperations
    accounts: AccountOperations
    connectors: ConnectorOperations
    skills: SkillOperations
    settings: SettingsOperations
    conversations: ConversationOperations
    schedules: ScheduleOperations
    webhooks: WebhookOperations
    hooks: WebhookIntake
    guard: GuardSettings
    health: Health
    version: str
    metrics: Metrics
    web_port: int = 5070
    demo: bool = False
    pairing: Callable[[], PairingSettings] = PairingSettings
    clock: Clock = utc_now
    outside: OutsideTools | None = None
    chat: AgentChat | None = None
    payloads: PayloadCoding | None = None
    redact: Callable[[], Redact] = lambda: keep_text
    budgets: Callable[[], BudgetSettings] = lambda: BudgetSettings(day_usd=0)

    def __post_init__(self) -> None:
        """Build the operations that need only the store and at most one other part."""
        self.agents = AgentOperations(self.store)
        self.bindings = BindingOperations(self.store)
        self.tokens = TokenOperations(self.store)
        self.questions = QuestionOperations(self.store)
        self.audit = AuditOperations(self.store)
        self.clients = ClientOperations(self.store)
        self.usage = UsageOperations(self.store, self.budgets)
        self.memory = MemoryOperations(self.store, self.redact)
        self.people = PeopleOperations(self.store, self.pairing)
