"""What an operator changes when a job is done again: who answers, with which model, and what is asked."""

from typing import Annotated

from pydantic import AfterValidator, Field

from maestro.domain.jobs.job import Job
from maestro.domain.messages import MAX_CONTENT_CHARS
from maestro.domain.texts import storable
from maestro.domain.values import View
from maestro.domain.words import ModelName, Slug

CHOSEN = "an operator chose"
"""Why an agent answers that no rule of routing named."""


def _something(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a text; leave it out to ask what was asked the first time")
    return storable(text)


Prompt = Annotated[str, Field(max_length=MAX_CONTENT_CHARS), AfterValidator(_something)]


class Edits(View):
    """What is not None stands in the place of what it was the first time.

    ``agent`` is the slug of who answers, ``model`` its first choice, before the agent's own fallbacks, and ``prompt``
    what the model reads instead of the message or the task; the message itself stays as it was said.
    """

    agent: Slug | None = None
    model: ModelName | None = None
    prompt: Prompt | None = None

    @property
    def any(self) -> bool:
        """Say whether something is changed."""
        return self != NO_EDITS

    @property
    def text(self) -> str:
        """What a job's row keeps of them: JSON, empty for none."""
        return self.model_dump_json(exclude_none=True) if self.any else ""


NO_EDITS = Edits()


def edits_of(job: Job) -> Edits:
    """Return what an operator changed in a job."""
    return Edits.model_validate_json(job.edits) if job.edits else NO_EDITS


def task_of(job: Job) -> str:
    """Return what the model is told that a job without a message is to do; empty for one that answers a message."""
    return (edits_of(job).prompt or job.task) if job.task else ""


def model_for(job: Job, own: str) -> str:
    """Return the model that is asked first: the operator's choice, else the agent's ``own``, which may be empty."""
    return edits_of(job).model or own
