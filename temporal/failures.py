"""The one door to a workflow history for anything that went wrong: a type and a fixed sentence, nothing else.

Chained exceptions, stack traces and the input values in validation errors would otherwise carry what people said into
the history (design invariant 1).
"""

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


class StepFailure(ApplicationError):
    """A failed step as Temporal sees it; ``wait`` until the next attempt, None when there is none."""

    def __init__(self, error: BaseException, wait: timedelta | None) -> None:
        super().__init__(
            error.public if isinstance(error, MaestroError) else UNEXPECTED,
            type=type(error).__name__,
            non_retryable=wait is None,
            next_retry_delay=wait,
            # To wait is no failure: neither the log nor the figures of the SDK should say so.
            category=ApplicationErrorCategory.BENIGN
            if isinstance(error, Suspension)
            else ApplicationErrorCategory.UNSPECIFIED,
        )


class SafeFailureConverter(DefaultFailureConverter):
    """Lets nothing but types and fixed sentences through."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Convert an exception; one that came from the server is passed on, for it was made safe on its way there."""
        super().to_failure(_safe(exception), payload_converter, failure)
        _strip(failure)


def _safe(exception: BaseException) -> BaseException:
    if isinstance(exception, StepFailure | ActivityError | ChildWorkflowError):
        return exception
    if isinstance(exception, FailureError) and exception.failure is not None:
        return exception
    if isinstance(exception, CancelledError):
        return CancelledError("Cancelled.")
    if isinstance(exception, MaestroError):
        return StepFailure(exception, timedelta(seconds=1) if exception.retryable else None)
    if isinstance(exception, ApplicationError):
        return ApplicationError(UNEXPECTED, type=exception.type, non_retryable=exception.non_retryable)
    return ApplicationError(UNEXPECTED, type=type(exception).__name__)


def _strip(failure: Failure) -> None:
    while True:
        failure.stack_trace = ""
        if not failure.HasField("cause"):
            return
        if failure.HasField("application_failure_info"):
            failure.ClearField("cause")
            return
        failure = failure.cause
