"""What the API is made of: everything it needs from outside, passed in by bootstrap."""

from collections.abc import Callable
from dataclasses import dataclass, field

from maestro.chat import ChatService
from maestro.domain.health import Health, Metrics
from maestro.domain.llm.budgets import DailyBudgets
from maestro.domain.network import TrustedProxies
from maestro.domain.redaction import Redact, keep_text
from maestro.domain.settings.chat import ChatSettings
from maestro.intake.pairing import PairingRules
from maestro.intake.webhooks import WebhookIntake
from maestro.operations.accounts import AccountOperations
from maestro.operations.agents import AgentOperations, BindingOperations, TokenOperations
from maestro.operations.batches import BatchOperations
from maestro.operations.clients import ClientOperations
from maestro.operations.connectors import ConnectorOperations
from maestro.operations.conversations import ConversationOperations
from maestro.operations.jobs import JobOperations
from maestro.operations.memory import MemoryOperations
from maestro.operations.people import PeopleOperations
from maestro.operations.questions import QuestionOperations
from maestro.operations.reports import AuditOperations, UsageOperations
from maestro.operations.schedules import ScheduleOperations
from maestro.operations.settings import SettingsOperations
from maestro.operations.skills import SkillOperations
from maestro.operations.webhooks import WebhookOperations
from maestro.store.store import Clock, Store, utc_now
from maestro.tools.outside import OutsideTools


@dataclass(frozen=True)
class GuardSettings:
    """Settings for access to the dashboard and the API.

    ``signing_key`` signs sessions. With an empty ``password`` every request has the rights of the operator; the bind
    must then be loopback. ``viewer_password`` gives read-only access; empty: there is none. ``allowed_hosts`` are the
    names, without a port, in the Host header of browsers besides loopback; a wildcard address there admits every plain
    address. The forwarded headers of ``trusted_proxies`` are trusted.
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
    """The #maestro chat, and what its page is told, asked for at each use."""

    service: ChatService
    rules: Callable[[], ChatSettings] = ChatSettings


@dataclass(frozen=True)
class ApiParts:
    """Everything that the routes and pages of one application use.

    Browsers reach the web connector at ``web_port`` of the host they see us under; 0 means that it does not run.
    ``demo`` says that the built-in model answers. ``outside`` are the tools
    of agents outside; None means that there is no MCP server, as ``chat`` that there is no #maestro chat. ``redact``
    takes secrets out of what operators have agents remember; it is asked for at each use, and so are the ``budgets``.
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
    pairing: Callable[[], PairingRules] = PairingRules
    clock: Clock = utc_now
    outside: OutsideTools | None = None
    chat: AgentChat | None = None
    redact: Callable[[], Redact] = lambda: keep_text
    budgets: Callable[[], DailyBudgets] = DailyBudgets

    @property
    def agents(self) -> AgentOperations:
        """Return the operations on agents."""
        return AgentOperations(self.store)

    @property
    def bindings(self) -> BindingOperations:
        """Return the operations on bindings."""
        return BindingOperations(self.store)

    @property
    def tokens(self) -> TokenOperations:
        """Return the operations on the tokens of agents."""
        return TokenOperations(self.store)

    @property
    def questions(self) -> QuestionOperations:
        """Return the operations on questions."""
        return QuestionOperations(self.store)

    @property
    def audit(self) -> AuditOperations:
        """Return the operations on the audit log."""
        return AuditOperations(self.store)

    @property
    def usage(self) -> UsageOperations:
        """Return the operations on usage."""
        return UsageOperations(self.store, self.budgets)

    @property
    def clients(self) -> ClientOperations:
        """Return the operations on clients."""
        return ClientOperations(self.store)

    @property
    def memory(self) -> MemoryOperations:
        """Return the operations on what agents remember."""
        return MemoryOperations(self.store, self.redact)

    @property
    def people(self) -> PeopleOperations:
        """Return the operations on people."""
        return PeopleOperations(self.store, self.pairing)
