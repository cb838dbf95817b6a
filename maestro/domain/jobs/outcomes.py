"""What each step of a job is for and what came of it, in the words of its page."""

import re
from collections.abc import Callable, Iterator, Mapping

from pydantic import ValidationError

from maestro.domain.jobs.flow import (
    AnswerOutcome,
    BackgroundOutcome,
    CloseOutcome,
    CompactionOutcome,
    ContextOutcome,
    ConversationOutcome,
    DeliverOutcome,
    MediaOutcome,
    ModelOutcome,
    ParkOutcome,
    RouteAction,
    RouteOutcome,
    ScriptOutcome,
    TakenUp,
    ToolOutcome,
    VoiceOutcome,
)
from maestro.domain.jobs.job import JobStep, StepState, Wait

NUMBERED = re.compile(r"^(?P<kind>[a-z-]+?)-(?P<number>\d+)(?:-(?P<place>\d+))?$")
"""A step that there may be several of: model-2, tool-2-0, park-1."""

PURPOSES: Mapping[str, str] = {
    "route": "Decide who answers",
    "take-up": "Take up the work",
    "media": "Fetch the files",
    "voice": "Listen to the voices",
    "typing": "Show that somebody types",
    "conversation": "Record the message",
    "compaction": "Shorten the conversation",
    "script": "Run the script",
    "context": "Build the prompt",
    "model": "Ask the model",
    "tool": "Call a tool",
    "tags": "Act on the answer and record it",
    "show": "Show what would be answered",
    "deliver": "Deliver",
    "notice": "Tell the person that it failed",
    "park": "Give the place back and wait",
    "close": "Close the job",
}
"""What the kinds of steps are for."""


def kind_of(step: str) -> str:
    """Return the kind of a step: its name without its numbers."""
    found = NUMBERED.match(step)
    return found["kind"] if found else step


def purpose_of(step: str) -> str:
    """Say what a step is for, with its number where a job may have several."""
    found = NUMBERED.match(step)
    words = PURPOSES.get(kind_of(step), step)
    return f"{words}, call {found['number']}" if found and found["kind"] == "model" else words


def note_of(row: JobStep) -> str:
    """Say what came of an attempt at a step, empty where its state says it all."""
    if not row.result:
        return ""
    told = _waits if row.state is StepState.WAITING else _NOTES.get(kind_of(row.step), _nothing)
    try:
        return told(row.result)
    except ValidationError:
        # What another release wrote in other words must not hide the rest of the page.
        return ""


def _nothing(_: str) -> str:
    return ""


def _waits(result: str) -> str:
    return f"waits for {Wait.model_validate_json(result).reason}"


def _listed(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)


def _route(result: str) -> str:
    told = RouteOutcome.model_validate_json(result)
    words = {
        RouteAction.ANSWER: f"{told.agent} answers",
        RouteAction.REPLY: "Maestro itself replies",
        RouteAction.DROP: "nobody answers",
    }[told.action]
    return ": ".join(filter(None, (words, told.reason)))


def _compaction(result: str) -> str:
    told = CompactionOutcome.model_validate_json(result)
    counts = (told.archived, "messages archived"), (told.facts, "facts kept"), (told.tokens_saved, "tokens saved")
    return _listed(*counts) or "nothing could go"


def _media(result: str) -> str:
    told = MediaOutcome.model_validate_json(result)
    counts = (told.files, "fetched"), (told.unavailable, "not to be had"), (told.voices, "voices to hear")
    return _listed(*counts) or "no files"


def _context(result: str) -> str:
    told = ContextOutcome.model_validate_json(result)
    return f"about {told.tokens:,} tokens in {told.turns:,} turns"


def _model(result: str) -> str:
    told = ModelOutcome.model_validate_json(result)
    wants = f"asks for {', '.join(told.tools)}" if told.tools else "answers"
    return f"{told.provider}/{told.model} {wants}"


def _answer(result: str) -> str:
    return "; ".join(_answer_parts(AnswerOutcome.model_validate_json(result)))


def _answer_parts(told: AnswerOutcome) -> Iterator[str]:
    if told.message_id:
        yield f"recorded as message {told.message_id}"
    if told.heard:
        yield "goes to the agent that gave the task"
    if told.silent:
        yield "nothing to tell, so nothing is sent"
    if told.begun:
        yield f"begins {len(told.begun)} {'task' if len(told.begun) == 1 else 'tasks'} of other agents"


def _taken(result: str) -> str:
    """A task of another agent and background work are taken up under the same name."""
    if "conversation_id" in result:
        task = TakenUp.model_validate_json(result)
        return f"{task.agent} works on it{', another agent hears the result' if task.heard else ''}"
    begun = BackgroundOutcome.model_validate_json(result)
    return f"{begun.agent} works on it{', by a script' if begun.script else ''}"


def _script(result: str) -> str:
    told = ScriptOutcome.model_validate_json(result)
    return f"asks a model: {told.asks}" if told.asks else "has something to post" if told.posts else "nothing to post"


def _recorded(result: str) -> str:
    told = ConversationOutcome.model_validate_json(result)
    long = ", which has grown too long for the model" if told.compaction_due else ""
    return f"message {told.message_id} of conversation {told.conversation_id}{long}"


def _voice(result: str) -> str:
    told = VoiceOutcome.model_validate_json(result)
    return f"{told.transcribed} of {told.voices} transcribed"


def _tool(result: str) -> str:
    return ToolOutcome.model_validate_json(result).state


def _sent(result: str) -> str:
    return _listed((DeliverOutcome.model_validate_json(result).chunks, "sent")) or "nothing to send"


def _parked(result: str) -> str:
    return ParkOutcome.model_validate_json(result).status


def _closed(result: str) -> str:
    return CloseOutcome.model_validate_json(result).status


_NOTES: Mapping[str, Callable[[str], str]] = {
    "route": _route,
    "take-up": _taken,
    "media": _media,
    "voice": _voice,
    "conversation": _recorded,
    "compaction": _compaction,
    "script": _script,
    "context": _context,
    "model": _model,
    "tool": _tool,
    "tags": _answer,
    "deliver": _sent,
    "notice": _sent,
    "park": _parked,
    "close": _closed,
}
