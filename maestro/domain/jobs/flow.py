"""The inputs and results of steps: ids and numbers only, so that Temporal histories hold no text of users."""

from enum import StrEnum

from maestro.domain.deliveries import DeliveryPurpose
from maestro.domain.jobs.job import JobStatus, StepGroup, StepRef
from maestro.domain.precedence import Precedence, Priority
from maestro.domain.tools import ToolState
from maestro.domain.values import Payload


class RouteAction(StrEnum):
    """The decision of routing: an agent answers, Maestro itself replies, or the message is dropped."""

    ANSWER = "answer"
    REPLY = "reply"
    DROP = "drop"


class StepOutcome(Payload):
    """The result of a step: ids and numbers only, because Temporal stores it."""

    @property
    def words(self) -> str:
        """The result in a few words for operators, empty if the state of the step says enough."""
        return ""


class RouteOutcome(StepOutcome):
    """The decision of routing; ``typing``: the typing indicator was started; ``media``: files have to be fetched."""

    action: RouteAction
    agent: str = ""
    reason: str = ""
    typing: bool = False
    media: bool = False
    precedence: Precedence | None = None

    @property
    def continues_preparation(self) -> bool:
        """Whether the next step records the message: an agent answers, and no files have to be fetched first."""
        return self.action is RouteAction.ANSWER and not self.media

    @property
    def words(self) -> str:
        actions = {
            RouteAction.ANSWER: f"{self.agent} answers",
            RouteAction.REPLY: "Maestro itself replies",
            RouteAction.DROP: "no agent answers",
        }
        return ": ".join(filter(None, (actions[self.action], self.reason)))


class MediaOutcome(StepOutcome):
    """The number of files fetched, of files that are unavailable, and of voice messages without a transcript."""

    files: int
    unavailable: int = 0
    voices: int = 0

    @property
    def words(self) -> str:
        voices = self.voices, "voice messages to transcribe"
        return _join_counts((self.files, "fetched"), (self.unavailable, "unavailable"), voices) or "no files"


class VoiceOutcome(StepOutcome):
    """The number of voice messages, and how many of them have a transcript now."""

    voices: int
    transcribed: int = 0

    @property
    def words(self) -> str:
        return f"{self.transcribed} of {self.voices} transcribed"


class ConversationOutcome(StepOutcome):
    """The recorded message, and whether the conversation has grown too long for the agent's model."""

    conversation_id: int
    message_id: int
    compaction_due: bool = False

    @property
    def continues_preparation(self) -> bool:
        """Whether the next step builds the prompt; if not, the conversation is compacted first."""
        return not self.compaction_due

    @property
    def words(self) -> str:
        long = ", which has grown too long for the model" if self.compaction_due else ""
        return f"message {self.message_id} of conversation {self.conversation_id}{long}"


class CompactionOutcome(StepOutcome):
    """The number of messages archived and of facts stored; ``compaction_id`` is 0 if nothing was archived."""

    compaction_id: int
    archived: int = 0
    facts: int = 0
    tokens_saved: int = 0

    @property
    def words(self) -> str:
        counts = (self.archived, "messages archived"), (self.facts, "facts stored"), (self.tokens_saved, "tokens saved")
        return _join_counts(*counts) or "nothing to archive"


class ContextOutcome(StepOutcome):
    """The id of the stored prompt, its number of messages and its estimated tokens."""

    prompt_id: int
    turns: int
    tokens: int

    @property
    def words(self) -> str:
        return f"about {self.tokens:,} tokens in {self.turns:,} messages"


class Preparation(StepGroup):
    """The input of the steps up to the prompt; ``asks``: the same process makes the model call right after them."""

    asks: bool = False


class PreparationOutcome(Payload):
    """The results of the steps up to the prompt, None for a step not done, and the durations of the steps."""

    route: RouteOutcome | None = None
    conversation: ConversationOutcome | None = None
    context: ContextOutcome | None = None
    milliseconds: tuple[int, ...] = ()


class ModelStep(StepRef):
    """The input of a model call; ``number`` counts the job's calls from 1. A ``final`` call offers no tools."""

    number: int
    final: bool = False


class ModelOutcome(StepOutcome):
    """The model, tokens and cost of a model call, and the names of the tools that the model asks for."""

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
        reply = f"asks for {', '.join(self.tools)}" if self.tools else "answers"
        cost = "" if self.cost_usd is None else f", {self.cost_usd:.6f} USD"
        tokens = f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out{cost}"
        return f"{self.provider}/{self.model} {reply}: {tokens}"


class ToolStep(StepRef):
    """One tool call; ``number`` is the model call that requested it, ``place`` its index in the answer, from 0."""

    number: int
    place: int


class ToolOutcome(StepOutcome):
    """The state of a tool call; the result of the call is stored in the database only."""

    state: ToolState

    @property
    def words(self) -> str:
        return self.state


class ParkStep(StepRef):
    """The steps for which a job waits; meanwhile the job leaves its lane (queue) and keeps its position there."""

    steps: tuple[str, ...]


class AnswerStep(StepRef):
    """The number of the model call with the final answer."""

    number: int


class AnswerOutcome(StepOutcome):
    """The recorded answer; ``begun`` are the ids of the jobs that the answer began, with their ``priority``.

    A ``heard`` answer goes to the agent that delegated the task instead of a channel. A ``silent`` answer is not sent
    at all, because a background job had nothing to post.
    """

    message_id: int
    heard: bool = False
    silent: bool = False
    begun: tuple[str, ...] = ()
    priority: int = Priority.DELEGATION

    @property
    def words(self) -> str:
        begun = f"begins {len(self.begun)} {'task' if len(self.begun) == 1 else 'tasks'} of other agents"
        parts = {
            f"recorded as message {self.message_id}": self.message_id,
            "goes to the agent that gave the task": self.heard,
            "nothing to post, so nothing is sent": self.silent,
            begun: self.begun,
        }
        return "; ".join(words for words, holds in parts.items() if holds)


class AskGroup(ModelStep, StepGroup):
    """The input of a model call; if the answer is final, the same activity may record and send the answer."""


class WhatIfOutcome(StepOutcome):
    """The number of tags in the answer of a what-if, none of which is carried out."""

    tags: int


class TakeUpOutcome(StepOutcome):
    """The agent and the conversation of a delegated task.

    ``heard`` means that only the delegating agent gets the result. ``asked`` means that the chain of tasks began with a
    user's message. Without ``asked``, neither the typing indicator nor a failure is shown.
    """

    agent: str
    conversation_id: int
    heard: bool
    typing: bool
    asked: bool = True
    precedence: Precedence | None = None

    @property
    def words(self) -> str:
        return f"{self.agent} works on the task{', another agent gets the result' if self.heard else ''}"


class BackgroundOutcome(StepOutcome):
    """The agent of a background job, and whether a script runs before or instead of a model call."""

    agent: str
    script: bool = False
    precedence: Precedence | None = None

    @property
    def words(self) -> str:
        return f"{self.agent} works on the task{', by a script' if self.script else ''}"


class ScriptOutcome(StepOutcome):
    """The result of a script: whether there is a text to post, and the id of the job that calls a model, if any."""

    posts: bool
    asks: str = ""

    @property
    def words(self) -> str:
        if self.asks:
            return f"asks a model: {self.asks}"
        return "has something to post" if self.posts else "nothing to post"


class DeliverStep(StepRef):
    """The purpose of the messages to send, and whether the job is completed once they are sent."""

    purpose: DeliveryPurpose
    closes: bool


class DeliverOutcome(StepOutcome):
    """The number of chunks (parts of messages) that were sent."""

    chunks: int

    @property
    def words(self) -> str:
        return _join_counts((self.chunks, "sent")) or "nothing to send"


class AskGroupOutcome(Payload):
    """The results of a model call and of the steps that record and send its answer; None: done by another activity."""

    model: ModelOutcome
    recorded: AnswerOutcome | None = None
    delivered: DeliverOutcome | None = None
    milliseconds: tuple[int, ...] = ()


class CloseStep(StepRef):
    """The input for closing an unsuccessful run: its status and error class. Only the job's last run is closed."""

    run: int
    status: JobStatus
    error: str = ""


class StatusOutcome(StepOutcome):
    """The status of a job after a request to close or park it; a job that had ended keeps its status."""

    status: JobStatus

    @property
    def words(self) -> str:
        return self.status


def _join_counts(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{count:,} {words}" for count, words in counts if count)
