"""What follows from an answer counts once the transaction that keeps the answer is committed."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.model_calls import AnsweringActivities, _AnswerAttempt
from maestro.domain.jobs.flow import AnswerOutcome, AskGroup, ModelOutcome
from maestro.domain.jobs.job import StepRef
from maestro.store.jobs.steps import OwnAttempt
from tests.support.job_rows import JobRows
from tests.support.llm_requests import request_of, response_of

CALL = ModelOutcome(number=1, model="m", provider="p", account="main", input_tokens=1, output_tokens=1, cost_usd=None)
RECORDED = AnswerOutcome(message_id=1)
ANSWER = response_of("an answer")


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


def test_a_chunk_of_a_transaction_that_was_taken_back_is_not_sent(rows: JobRows) -> None:
    """The answer is committed alone then, and its delivery is a step of its own."""
    job_id = rows.add()
    attempt = OwnAttempt(StepRef(job_id=job_id, step="deliver"), 1, "deliver", started_at=rows.clock())
    steps = SimpleNamespace(
        llm=SimpleNamespace(store_answer=lambda *_: CALL),
        tags=SimpleNamespace(needs_secret_scan=lambda _: False, record_answer=None),
        journal=SimpleNamespace(run_store_step=lambda *_: RECORDED, begin_attempt=lambda *_, **__: attempt),
        delivery=SimpleNamespace(prepare_at_once=lambda *_: "a chunk"),
    )
    call = _AnswerAttempt(
        cast("AnsweringActivities", steps), AskGroup(job_id=job_id, step="model-1", number=1, final=True)
    )
    call._request = request_of()
    with rows.store.view() as tx:
        call._job = tx.jobs.read(job_id)

    with suppress(OSError), rows.store.begin() as tx:
        call._process_answer(tx, ANSWER)
        raise OSError("the disk is full")
    assert call._answer is None
    with rows.store.begin() as tx:
        call._process_answer(tx, ANSWER)
    kept: Any = call._answer
    assert (kept.outcome, kept.recorded, kept.sending[1]) == (CALL, RECORDED, "a chunk")
