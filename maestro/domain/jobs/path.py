"""The steps of a job in their order, as far as what is done says, and the first that is not.

See docs/invariants.md: resume.
"""

from collections.abc import Iterator, Mapping, Sequence

from maestro.domain.jobs.flow import (
    AnswerOutcome,
    BackgroundOutcome,
    ConversationOutcome,
    MediaOutcome,
    ModelOutcome,
    RouteAction,
    RouteOutcome,
    ScriptOutcome,
)
from maestro.domain.jobs.job import Job, JobStep, StepState, is_background

OPTIONAL = frozenset({"media", "voice", "compaction"})
"""Steps that an answer can do without: one that failed is tried again by a resume."""

AFTERMATH = ("notice", "close", "park")
"""How the steps begin that follow a failure, a stop or a wait: they are no part of the way to an answer."""

Done = Mapping[str, str]
"""The finished steps, by name, with the JSON of what they returned."""


class Unknown(Exception):
    """What comes next depends on a step that has not finished."""


def finished(steps: Sequence[JobStep]) -> dict[str, str]:
    """Return the steps whose results are kept."""
    done = (step for step in steps if step.state is StepState.DONE)
    return {step.step: step.result for step in done if not step.step.startswith(AFTERMATH)}


def next_step(job: Job, done: Done) -> str | None:
    """Return the step at which the job goes on, None when every step of it is done."""
    missing = (step for step in _path(job, done) if step not in done and step not in OPTIONAL)
    return next(missing, None)


def tried_again(job: Job, done: Done) -> tuple[str, ...]:
    """Return the steps that failed and that the job went on without: a resume tries them again on its way."""
    found: list[str] = []
    for step in _path(job, done):
        if step in done:
            continue
        if step not in OPTIONAL:
            break
        found.append(step)
    return tuple(found)


def _path(job: Job, done: Done) -> Iterator[str]:
    """Yield the steps in order; it ends where nobody can know yet what follows."""
    try:
        yield from _steps(job, done)
    except Unknown:
        return


def _steps(job: Job, done: Done) -> Iterator[str]:
    if job.what_if:
        yield "route"
        yield from _asked(done)
        yield "show"
    elif job.parent_id is not None:
        yield "take-up"
        yield from _answered(done)
    elif is_background(job):
        yield from _in_background(done)
    else:
        yield from _message(done)


def _message(done: Done) -> Iterator[str]:
    yield "route"
    route = RouteOutcome.model_validate_json(_result(done, "route"))
    if route.action is RouteAction.REPLY:
        yield "deliver"
    if route.action is not RouteAction.ANSWER:
        return
    if route.media:
        yield "media"
        if "media" in done and MediaOutcome.model_validate_json(done["media"]).voices:
            yield "voice"
    yield "conversation"
    if ConversationOutcome.model_validate_json(_result(done, "conversation")).compaction_due:
        yield "compaction"
    yield from _answered(done)


def _in_background(done: Done) -> Iterator[str]:
    yield "take-up"
    if not BackgroundOutcome.model_validate_json(_result(done, "take-up")).script:
        yield from _answered(done)
        return
    yield "script"
    if ScriptOutcome.model_validate_json(_result(done, "script")).posts:
        yield "deliver"


def _answered(done: Done) -> Iterator[str]:
    yield from _asked(done)
    yield "tags"
    answer = AnswerOutcome.model_validate_json(_result(done, "tags"))
    if not (answer.heard or answer.silent):
        yield "deliver"


def _asked(done: Done) -> Iterator[str]:
    """Yield the prompt, then the calls of the model and the tools it asks for."""
    yield "context"
    number = 0
    tools: tuple[str, ...] = ("",)
    while tools:
        number += 1
        yield f"model-{number}"
        tools = ModelOutcome.model_validate_json(_result(done, f"model-{number}")).tools
        yield from (f"tool-{number}-{place}" for place, _ in enumerate(tools))


def _result(done: Done, step: str) -> str:
    if step not in done:
        raise Unknown
    return done[step]
