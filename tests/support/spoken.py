"""Messages that go through the real steps up to the model's answer, in a store without Temporal."""

from collections.abc import Collection
from dataclasses import dataclass, field

from activities.context import ContextActivities, ModelRules
from activities.conversations import ConversationActivities, TagActivities
from activities.model_calls import LLMActivities
from activities.tags import ActingRules
from connectors.hub import TypingIndicators
from maestro.domain.agents.agent import Agent, MemoryScope
from maestro.domain.jobs.flow import AnswerStep, ModelStep
from maestro.domain.jobs.job import StepRef
from maestro.domain.llm.calls import Prompt
from maestro.domain.llm.prompts import PROMPT_TURNS, LLMResponse, PromptMessage, ToolSpec
from maestro.domain.messages import Address
from maestro.llm.accounts import Estimates
from maestro.llm.middleware.recorder import Recorder
from maestro.tools.registry import ToolRegistry
from tests.support.answer_spool import answer_spool
from tests.support.job_rows import JobRows
from tests.support.llm_accounts import replay_guard
from tests.support.llm_fakes import Accounts, Scripted
from tests.support.llm_requests import TIME, response_of

BIG, SMALL = 200_000, 8_192
LONGEST_ANSWER = 1_000


class OneTool(ToolRegistry):
    """A toolbox with one tool."""

    def __init__(self) -> None:
        super().__init__([], [])

    def list_tools(self, agent: Agent) -> tuple[ToolSpec, ...]:
        """Offer it to everybody who does not go without."""
        return (TIME,) if agent.tool_names is None else ()


class NoTyping(TypingIndicators):
    """Shows nobody anything."""

    def __init__(self) -> None:
        """Need no event loop."""

    def start_indicator(self, job_id: str, address: Address, message_ids: Collection[str] = ()) -> bool:
        return False

    def stop_indicator(self, job_id: str) -> None:
        return None


@dataclass
class Spoken:
    """A store in which messages are said and answered; ``window`` is that of every model."""

    rows: JobRows
    window: int = BIG
    scope: MemoryScope = MemoryScope.AGENT
    acting: ActingRules | None = None
    asked: list[str] = field(default_factory=list)
    contexts: dict[MemoryScope, ContextActivities] = field(default_factory=dict)

    def prepared(self, text: str) -> str:
        """Have somebody say something, up to the prompt; return its job."""
        return self.built(self.rows.add(text))

    def built(self, job_id: str) -> str:
        """Let the steps of a job be done up to its prompt, and return it."""
        for step, work in (("conversation", self._conversations.record_message), ("context", self.build)):
            with self.rows.store.begin() as tx:
                tx.jobs.steps.start_attempt(StepRef(job_id=job_id, step=step), step, 1)
            work(StepRef(job_id=job_id, step=step))
        self.asked.append(job_id)
        return job_id

    async def answered(self, text: str, answer: LLMResponse | str = "as you say") -> str:
        """Have somebody say something and be answered; return its job."""
        job_id = self.prepared(text)
        await self.answer(job_id, answer)
        return job_id

    def built_prompt(self, job_id: str) -> str:
        """Let the prompt of a job without a conversation be built, and return its last turn."""
        step = StepRef(job_id=job_id, step="context")
        with self.rows.store.begin() as tx:
            tx.jobs.steps.start_attempt(step, "build_context", 1)
        self.build(step)
        return str(self.messages(job_id)[-1].content)

    async def answer(self, job_id: str, answer: LLMResponse | str) -> None:
        """Have the model say this for a job whose prompt is built, and the agent act on it."""
        response = response_of(answer) if isinstance(answer, str) else answer
        recorder = Recorder(
            Scripted(response), self.rows.store, Estimates(Accounts(()), lambda _: None), answer_spool(self.rows.store)
        )
        step = ModelStep(job_id=job_id, step="model-1", number=1)
        with self.rows.store.begin() as tx:
            tx.jobs.steps.start_attempt(StepRef(job_id=job_id, step=step.step), "call_model", 1)
        rules = ModelRules(lambda _: self.window, OneTool(), LONGEST_ANSWER)
        await LLMActivities(
            self.rows.store, replay_guard(self.rows.store, recorder), NoTyping(), lambda: rules
        ).call_model(step)
        self.act(job_id)

    def act(self, job_id: str) -> None:
        """Have the agent act on the answer of a job."""
        with self.rows.store.begin() as tx:
            tx.jobs.steps.start_attempt(StepRef(job_id=job_id, step="tags"), "record_answer", 1)
        rules = self.acting or ActingRules(self.scope, frozenset())
        step = AnswerStep(job_id=job_id, step="tags", number=1)
        TagActivities(self.rows.store, lambda: rules, lambda: None).record_answer(step)

    def prompt(self, job_id: str) -> Prompt:
        """Return the stored prompt of a job."""
        with self.rows.store.view() as tx:
            return tx.llm.prompts.get_prompt_of_job(job_id)

    def messages(self, job_id: str) -> tuple[PromptMessage, ...]:
        """Return what the prompt of a job says."""
        with self.rows.store.view() as tx:
            return tx.llm.prompts.restore_messages(
                PROMPT_TURNS.validate_json(tx.llm.prompts.get_prompt_of_job(job_id).turns)
            )

    @property
    def _conversations(self) -> ConversationActivities:
        return ConversationActivities(self.rows.store, lambda _: self.window)

    def build(self, ref: StepRef) -> None:
        """Do the step that builds the prompt, as one process does it for message after message."""
        if self.scope not in self.contexts:
            rules = ModelRules(lambda _: self.window, OneTool(), LONGEST_ANSWER, self.scope)
            self.contexts[self.scope] = ContextActivities(self.rows.store, lambda: rules)
        self.contexts[self.scope].build_context(ref)
