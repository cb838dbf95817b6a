"""The steps of a message up to its prompt: they are done together where nothing else comes between."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from temporalio import activity

from activities.context import ContextActivities
from activities.conversations import ConversationActivities
from activities.routing import RoutingActivities
from maestro.domain.jobs.flow import Preparation, PreparationOutcome
from maestro.domain.jobs.job import StepRef

Result = TypeVar("Result")

MODEL_STEP = "model-1"


class GroupJournal(Protocol):
    """Journals the steps of an activity that does several."""

    def together(self, job_id: str, work: Callable[[], Result]) -> Result:
        """Return what the work returns, which runs steps that only write to the store, in one transaction."""
        ...

    def run(self, function: Callable[[Any], Any], ref: StepRef) -> Any:
        """Return what a step that only writes to the store returns, or what it returned when it finished."""
        ...

    def begin_ahead(self, ref: StepRef, name: str) -> None:
        """Put a step that acts outside on record for the first attempt of the activity that comes next."""
        ...


class PreparationActivities:
    """Routes a message, records it and builds its prompt."""

    def __init__(
        self,
        journal: GroupJournal,
        routing: RoutingActivities,
        conversations: ConversationActivities,
        context: ContextActivities,
    ) -> None:
        self._journal = journal
        self._steps: dict[str, Callable[[StepRef], Any]] = {
            "route": routing.choose_agent,
            "conversation": conversations.record_message,
            "context": context.build_context,
        }

    @activity.defn(no_thread_cancel_exception=True)
    def prepare(self, start: Preparation) -> PreparationOutcome:
        """Do the steps from one on, until one says that something else comes before the next."""
        return self._journal.together(start.job_id, partial(self._prepared, start))

    def _prepared(self, start: Preparation) -> PreparationOutcome:
        done: dict[str, Any] = {}
        took = []
        for name in list(self._steps)[list(self._steps).index(start.step) :]:
            began = time.monotonic()
            done[name] = self._journal.run(self._steps[name], StepRef(job_id=start.job_id, step=name))
            took.append(round((time.monotonic() - began) * 1000))
            if name != "context" and not done[name].goes_on:
                return PreparationOutcome(**done, milliseconds=tuple(took))
        if start.asks:
            self._journal.begin_ahead(StepRef(job_id=start.job_id, step=MODEL_STEP), "call_model")
        return PreparationOutcome(**done, milliseconds=tuple(took))
