"""The deadline and the validator, around a model that does as the test says."""

import asyncio
from datetime import timedelta

import pytest

from maestro.domain.llm_errors import BadRequest, EmptyResponse, ModelTimeout
from maestro.domain.prompts import LLMRequest, LLMResponse
from maestro.llm.middleware.deadline import deadline
from maestro.llm.middleware.validator import Validator
from maestro.llm.protocols import chain
from tests.support.llm_requests import request_of, response_of


class Model:
    """Answers after a while, or fails."""

    def __init__(self, outcome: LLMResponse | Exception, seconds: float = 0) -> None:
        self._outcome = outcome
        self._seconds = seconds
        self.cancelled = False

    async def complete(self, _: LLMRequest) -> LLMResponse:
        try:
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


async def test_an_answer_in_time_passes() -> None:
    answer = response_of("hello")
    client = chain(Model(answer), Validator, deadline(lambda: timedelta(seconds=5)))
    assert await client.complete(request_of()) is answer


async def test_a_late_answer_is_given_up() -> None:
    model = Model(response_of("late"), seconds=60)
    with pytest.raises(ModelTimeout, match=r"No whole answer within 0\.05 s") as caught:
        await chain(model, deadline(lambda: timedelta(seconds=0.05))).complete(request_of())
    assert model.cancelled
    assert caught.value.__context__ is None


async def test_the_limit_is_asked_for_at_each_call() -> None:
    limits = iter([timedelta(seconds=5), timedelta(seconds=0.01)])
    client = chain(Model(response_of("hello"), seconds=0.1), deadline(lambda: next(limits)))
    await client.complete(request_of())
    with pytest.raises(ModelTimeout):
        await client.complete(request_of())


async def test_other_failures_pass_the_deadline_unchanged() -> None:
    failure = BadRequest("no")
    with pytest.raises(BadRequest) as caught:
        await chain(Model(failure), deadline(lambda: timedelta(seconds=5))).complete(request_of())
    assert caught.value is failure


async def test_being_cancelled_is_not_a_timeout() -> None:
    call = asyncio.create_task(
        chain(Model(response_of("late"), 60), deadline(lambda: timedelta(seconds=60))).complete(request_of())
    )
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("content", ["", " ", "\n\t\u00a0"])
async def test_an_answer_of_nothing_is_a_failure_worth_repeating(content: str) -> None:
    with pytest.raises(EmptyResponse) as caught:
        await Validator(Model(response_of(content))).complete(request_of())
    assert caught.value.retryable
    assert caught.value.site is not None
    assert caught.value.site.model == "model-1"


@pytest.mark.parametrize(("reason", "advice"), [("length", "maxOutputTokens"), ("content_filter", "filter")])
async def test_the_reason_for_an_empty_answer_is_explained(reason: str, advice: str) -> None:
    with pytest.raises(EmptyResponse, match=advice):
        await Validator(Model(response_of("", reason))).complete(request_of())
