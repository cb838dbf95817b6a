"""What a workflow history and the log say of steps that fail: the class and a fixed sentence, and one line each."""

import asyncio
import importlib
import logging
import pkgutil
from collections.abc import Iterator

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultPayloadConverter
from temporalio.exceptions import ApplicationError, CancelledError

import activities
import connectors
import maestro
import temporal
from maestro.domain.errors import MaestroError, Stopped
from temporal.attempts import UNEXPECTED, ExpectedEndFilter, SafeFailureConverter, StepFailure, sentence_of_error

SECRET = "what a person wrote"


def every_error() -> Iterator[type[MaestroError]]:
    """Import the product, and yield each class of error in it."""
    for package in (maestro, activities, connectors, temporal):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and "migrations" not in module.name:
                importlib.import_module(module.name)
    found = [MaestroError]
    for kind in found:
        found += [one for one in kind.__subclasses__() if one not in found and not one.__module__.startswith("tests")]
    yield from found


def told(error: BaseException) -> tuple[str, str]:
    """Return the type and the sentence that enter a history."""
    failure = Failure()
    SafeFailureConverter().to_failure(error, DefaultPayloadConverter(), failure)
    assert SECRET not in str(failure)
    return failure.application_failure_info.type, failure.message


def test_every_expected_failure_enters_the_history_by_its_class_and_its_own_sentence() -> None:
    kinds = list(every_error())
    assert len(kinds) > 40
    wordless = [kind.__name__ for kind in kinds[1:] if kind.public == MaestroError.public]
    assert wordless == [], "these have no sentence of their own"
    sentences = {kind.__name__: {one.public for one in kinds if one.__name__ == kind.__name__} for kind in kinds}
    for kind in kinds:
        error = kind.__new__(kind, SECRET)
        known = (kind.__name__, kind.public)
        assert told(error) == told(StepFailure(error, None)) == known
        of_workflow = told(ApplicationError(SECRET, type=kind.__name__))
        # Connectors have errors of one name; they never leave their connector.
        assert of_workflow == (known if len(sentences[kind.__name__]) == 1 else (kind.__name__, UNEXPECTED))
        assert told(ValueError(SECRET)) == ("ValueError", UNEXPECTED)


def test_what_temporal_says_itself_has_a_sentence_too() -> None:
    assert "did not end in its time" in sentence_of_error("TimeoutError")
    assert sentence_of_error("KeyError") == UNEXPECTED


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (StepFailure(Stopped("by a person"), None), []),
        (Stopped("by a person"), ["Completing activity as failed: Stopped"]),
        (asyncio.CancelledError(), ["Completing activity as failed: CancelledError"]),
        (CancelledError("late"), ["Completing activity as failed: CancelledError"]),
    ],
)
def test_an_expected_end_is_one_line(error: BaseException, lines: list[str]) -> None:
    assert written(error) == lines


def test_a_fault_keeps_its_traceback() -> None:
    (text,) = written(ValueError("a fault"))
    assert text.splitlines()[1:] == ["ValueError: a fault"]


def written(error: BaseException) -> list[str]:
    """Return what is written when the SDK tells of an error."""
    record = logging.LogRecord(
        "temporalio.activity", logging.WARNING, "", 0, "Completing activity as failed", (), (type(error), error, None)
    )
    return [logging.Formatter().format(record)] if ExpectedEndFilter().filter(record) else []
