"""The payloads of the flow's steps: ids and words only, never text, so that no history holds what people say."""

from enum import StrEnum

from maestro.domain.deliveries import DeliveryPurpose
from maestro.domain.jobs.job import JobStatus, StepGroup, StepRef
from maestro.domain.precedence import Precedence, Priority
from maestro.domain.tools import ToolState
from maestro.domain.values import Value


class RouteAction(StrEnum):
    """What routing decided."""

    ANSWER = "answer"
    REPLY = "reply"
    DROP = "drop"


class StepOutcome(Value):
    """What a step returned; its ``words`` hold ids and figures, nothing of what was said, as Temporal shows them."""

    @property
    def words(self) -> str:
        """What came of the step, empty where its end says it all."""
        return ""


class RouteOutcome(StepOutcome):
    """The agent that answers; ``typing``: the process that routed has started the indicator."""

    action: RouteAction
    agent: str = ""
    reason: str = ""
    typing: bool = False
    media: bool = False
    precedence: Precedence | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the message is recorded next, and not its files fetched before, or nothing at all."""
        return self.action is RouteAction.ANSWER and not self.media

    @property
    def words(self) -> str:
        """What came of the step."""
        who = {RouteAction.ANSWER: f"{self.agent} answers", RouteAction.REPLY: "Maestro itself replies"}
        return ": ".join(filter(None, (who.get(self.action, "nobody answers"), self.reason)))


class MediaOutcome(StepOutcome):
    """How many files were fetched, how many cannot be had, and how many are voices without a transcript."""

    files: int
    unavailable: int = 0
    voices: int = 0

    @property
    def words(self) -> str:
        """What came of the step."""
        counts = (self.files, "fetched"), (self.unavailable, "not to be had"), (self.voices, "voices to hear")
        return _listed(*counts) or "no files"


class VoiceOutcome(StepOutcome):
    """How many voices there were to listen to, and of how many there is a transcript now."""

    voices: int
    transcribed: int = 0

    @property
    def words(self) -> str:
        """What came of the step."""
        return f"{self.transcribed} of {self.voices} transcribed"


class ConversationOutcome(StepOutcome):
    """Where the message was recorded, and whether the conversation has grown too long for the agent's model."""

    conversation_id: int
    message_id: int
    compaction_due: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether the prompt is built next, and not the conversation compacted before."""
        return not self.compaction_due

    @property
    def words(self) -> str:
        """What came of the step."""
        long = ", which has grown too long for the model" if self.compaction_due else ""
        return f"message {self.message_id} of conversation {self.conversation_id}{long}"


class CompactionOutcome(StepOutcome):
    """What a compaction took away and what it learned; ``compaction_id`` is 0 when nothing could go."""

    compaction_id: int
    archived: int = 0
    facts: int = 0
    tokens_saved: int = 0

    @property
    def words(self) -> str:
        """What came of the step."""
        counts = (self.archived, "messages archived"), (self.facts, "facts kept"), (self.tokens_saved, "tokens saved")
        return _listed(*counts) or "nothing could go"


class ContextOutcome(StepOutcome):
    """The stored prompt."""

    prompt_id: int
    turns: int
    tokens: int

    @property
    def words(self) -> str:
        """What came of the step."""
        return f"about {self.tokens:,} tokens in {self.turns:,} turns"


class Preparation(StepGroup):
    """The steps from ``step`` on up to the prompt of a message.

    With ``asks`` the model is asked by the same process next, and its call is put on record with the prompt.
    """

    asks: bool = False


class PreparationOutcome(Value):
    """What the steps up to the prompt returned; None for those that were not reached, or done before."""

    route: RouteOutcome | None = None
    conversation: ConversationOutcome | None = None
    context: ContextOutcome | None = None
    milliseconds: tuple[int, ...] = ()


class ModelStep(StepRef):
    """One model call; ``number`` counts the job's calls from 1. A final one must be answered without tools."""

    number: int
    final: bool = False


class ModelOutcome(StepOutcome):
    """What a model call took, and the names of the tools it asks for; the answer itself stays in the store."""

    number: int
    model: str
    provider: str
    account: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    tools: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What came of the step."""
        wants = f"asks for {', '.join(self.tools)}" if self.tools else "answers"
        cost = "" if self.cost_usd is None else f", {self.cost_usd:.6f} USD"
        tokens = f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out{cost}"
        return f"{self.provider}/{self.model} {wants}: {tokens}"


class ToolStep(StepRef):
    """One tool call: the number of the model call that asked for it, and its place in the answer, from 0."""

    number: int
    place: int


class ToolOutcome(StepOutcome):
    """What became of a tool call; its result stays in the store."""

    state: ToolState

    @property
    def words(self) -> str:
        """What came of the step."""
        return self.state


class ParkStep(StepRef):
    """The steps that cannot go on, by name."""

    steps: tuple[str, ...]


class ParkOutcome(StepOutcome):
    """The job's status after it was parked; another one than waiting if it was ended meanwhile."""

    status: JobStatus

    @property
    def words(self) -> str:
        """What came of the step."""
        return self.status


class AnswerStep(StepRef):
    """The model call with the final answer."""

    number: int


class AnswerOutcome(StepOutcome):
    """Where the answer was recorded, and which jobs it began; ``heard`` by another agent, an answer is not sent.

    Nor is one that is ``silent``, because a job without a person had nothing to tell.

    ``priority`` is that of the begun jobs.
    """

    message_id: int
    heard: bool = False
    silent: bool = False
    begun: tuple[str, ...] = ()
    priority: int = Priority.DELEGATION

    @property
    def words(self) -> str:
        """What came of the step."""
        begun = f"begins {len(self.begun)} {'task' if len(self.begun) == 1 else 'tasks'} of other agents"
        parts = {
            f"recorded as message {self.message_id}": self.message_id,
            "goes to the agent that gave the task": self.heard,
            "nothing to tell, so nothing is sent": self.silent,
            begun: self.begun,
        }
        return "; ".join(words for words, holds in parts.items() if holds)


class AskGroup(ModelStep, StepGroup):
    """One model call; a final answer is recorded and sent with it where nothing is in the way."""


class WhatIfOutcome(StepOutcome):
    """How many tags the answer of a what-if has; they do nothing."""

    tags: int


class TakeUpOutcome(StepOutcome):
    """The agent of a task, its conversation, and whether only the agent that gave it hears the result.

    ``asked``: a person began what it came of; without one, neither work nor failure is shown.
    """

    agent: str
    conversation_id: int
    heard: bool
    typing: bool
    asked: bool = True
    precedence: Precedence | None = None

    @property
    def words(self) -> str:
        """What came of the step."""
        return f"{self.agent} works on it{', another agent hears the result' if self.heard else ''}"


class BackgroundOutcome(StepOutcome):
    """The agent of a background job, and whether a script runs before any model."""

    agent: str
    script: bool = False
    precedence: Precedence | None = None

    @property
    def words(self) -> str:
        """What came of the step."""
        return f"{self.agent} works on it{', by a script' if self.script else ''}"


class ScriptOutcome(StepOutcome):
    """What a script came to: whether there is something to post, and the job that asks a model, if one is to."""

    posts: bool
    asks: str = ""

    @property
    def words(self) -> str:
        """What came of the step."""
        if self.asks:
            return f"asks a model: {self.asks}"
        return "has something to post" if self.posts else "nothing to post"


class DeliverStep(StepRef):
    """What to send, and whether the job is over once it is sent."""

    purpose: DeliveryPurpose
    closes: bool


class DeliverOutcome(StepOutcome):
    """How many chunks were sent."""

    chunks: int

    @property
    def words(self) -> str:
        """What came of the step."""
        return _listed((self.chunks, "sent")) or "nothing to send"


class AskGroupOutcome(Value):
    """What a model call came to, and how the answer was recorded and sent; None where steps of their own do that."""

    model: ModelOutcome
    recorded: AnswerOutcome | None = None
    delivered: DeliverOutcome | None = None
    milliseconds: tuple[int, ...] = ()


class CloseStep(StepRef):
    """How an unsuccessful run ends; ``error`` is the name of a class. A later run of the job is not touched."""

    run: int
    status: JobStatus
    error: str = ""


class CloseOutcome(StepOutcome):
    """The job's final status; another one than asked for if it had ended already."""

    status: JobStatus

    @property
    def words(self) -> str:
        """What came of the step."""
        return self.status


def _listed(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)
