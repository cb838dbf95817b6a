"""Failures as workflow histories contain them: a type and a fixed sentence, nothing else.

Chained exceptions, stack traces and the input values in validation errors would bring messages of users into the
history (docs/invariants.md: by reference).
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from datetime import timedelta

from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ApplicationErrorCategory,
    CancelledError,
    ChildWorkflowError,
    FailureError,
)

from maestro.domain.errors import MaestroError, Suspension

UNEXPECTED = "An unexpected error; the worker's log and the job's steps say more."
OF_THE_ENGINE: Mapping[str, str] = {
    "CancelledError": "Cancelled.",
    "TimeoutError": "A step did not end in its time, or its worker was lost.",
}
"""The fixed sentences of failures that Temporal itself raises, by class name."""


class StepFailure(ApplicationError):
    """A failed ``step`` as Temporal sees it; ``wait`` is the time until the next attempt, None if there is none."""

    def __init__(self, error: BaseException, wait: timedelta | None, step: str = "") -> None:
        super().__init__(
            error.public if isinstance(error, MaestroError) else UNEXPECTED,
            *([step] if step else []),
            type=type(error).__name__,
            non_retryable=wait is None,
            next_retry_delay=wait,
            # A step that waits has not failed: BENIGN keeps it out of the SDK's error log and failure metrics.
            category=ApplicationErrorCategory.BENIGN
            if isinstance(error, Suspension)
            else ApplicationErrorCategory.UNSPECIFIED,
        )


class SafeFailureConverter(DefaultFailureConverter):
    """A failure converter that writes only types and fixed sentences into a history."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Convert an exception; one that came from the server is already converted, and passes unchanged."""
        super().to_failure(_safe_failure(exception), payload_converter, failure)
        while True:
            failure.stack_trace = ""
            if failure.HasField("application_failure_info"):
                failure.ClearField("cause")
            if not failure.HasField("cause"):
                return
            failure = failure.cause


def _safe_failure(exception: BaseException) -> BaseException:
    if isinstance(exception, StepFailure | ActivityError | ChildWorkflowError):
        return exception
    if isinstance(exception, FailureError) and exception.failure is not None:
        return exception
    if isinstance(exception, CancelledError):
        return CancelledError("Cancelled.")
    if isinstance(exception, MaestroError):
        return StepFailure(exception, timedelta(seconds=1) if exception.retryable else None)
    if isinstance(exception, ApplicationError):
        sentence = sentence_for(exception.type or "")
        return ApplicationError(sentence, type=exception.type, non_retryable=exception.non_retryable)
    return ApplicationError(UNEXPECTED, type=type(exception).__name__)


def sentence_for(kind: str) -> str:
    """Return the fixed sentence of a failure by its class name, if exactly one class of Maestro has that name."""
    sentences = {error.public for error in _with_subclasses(MaestroError) if error.__name__ == kind}
    return sentences.pop() if len(sentences) == 1 else OF_THE_ENGINE.get(kind, UNEXPECTED)


def _with_subclasses(kind: type[MaestroError]) -> Iterator[type[MaestroError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _with_subclasses(subclass)


class ExpectedEndFilter(logging.Filter):
    """A log filter that shortens the SDK's tracebacks about expected ends of steps to one line.

    Records that only repeat a line of the journal are dropped. A bug in Maestro keeps its traceback.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record; the traceback of an expected error is removed from it."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, StepFailure):
            return False
        if isinstance(error, MaestroError | CancelledError | asyncio.CancelledError):
            record.msg, record.args = f"{record.getMessage()}: {type(error).__name__}", ()
            record.exc_info = record.exc_text = None
        return True
