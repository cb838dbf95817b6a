"""The total deadline, around a model that takes its time; time is virtual."""

import asyncio
from datetime import timedelta

import pytest

from maestro.domain.llm.calls import BadRequest, ModelTimeout
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.llm.middleware.limits import Deadline
from maestro.llm.protocols import chain_middleware
from tests.support.llm_fakes import Held, Scripted, settled
from tests.support.llm_requests import request_of, response_of
from tests.support.virtual_time import in_virtual_time, seconds


class Slow:
    """Answers after many short waits, as a provider does that sends a byte now and then."""

    def __init__(self, waits: int, length: float) -> None:
        self._waits = waits
        self._length = length
        self.cancelled = False

    async def complete(self, _: LLMRequest) -> LLMResponse:
        try:
            for _byte in range(self._waits):
                await asyncio.sleep(self._length)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return response_of("late")


def limit(length: float) -> timedelta:
    return timedelta(seconds=length)


def test_an_answer_in_time_passes() -> None:
    answer = response_of("hello")
    assert (
        in_virtual_time(
            chain_middleware(Scripted(answer), lambda inner: Deadline(inner, lambda: limit(5))).complete(request_of())
        )
        is answer
    )


def test_a_late_answer_is_given_up() -> None:
    model = Slow(1, 60)

    async def scenario() -> None:
        with pytest.raises(ModelTimeout, match="No whole answer within 5 s") as caught:
            await chain_middleware(model, lambda inner: Deadline(inner, lambda: limit(5))).complete(request_of())
        assert caught.value.__context__ is None

    in_virtual_time(scenario())
    assert model.cancelled


def test_bytes_that_keep_dribbling_in_do_not_stretch_the_limit() -> None:
    async def scenario() -> float:
        with pytest.raises(ModelTimeout):
            await chain_middleware(Slow(1000, 0.3), lambda inner: Deadline(inner, lambda: limit(2))).complete(
                request_of()
            )
        return seconds()

    assert in_virtual_time(scenario()) == pytest.approx(2)


def test_the_limit_is_asked_for_at_each_call() -> None:
    limits = iter([limit(5), limit(0.5)])
    client = chain_middleware(Slow(1, 1), lambda inner: Deadline(inner, lambda: next(limits)))

    async def scenario() -> None:
        await client.complete(request_of())
        with pytest.raises(ModelTimeout):
            await client.complete(request_of())

    in_virtual_time(scenario())


async def test_other_failures_pass_the_deadline_unchanged() -> None:
    failure = BadRequest("no")
    with pytest.raises(BadRequest) as caught:
        await chain_middleware(Scripted(failure), lambda inner: Deadline(inner, lambda: limit(5))).complete(
            request_of()
        )
    assert caught.value is failure


async def test_being_cancelled_is_not_a_timeout() -> None:
    call = asyncio.create_task(
        chain_middleware(Held(), lambda inner: Deadline(inner, lambda: limit(60))).complete(request_of())
    )
    await settled()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def test_the_clock_starts_when_the_request_can_be_sent() -> None:
    async def loading(_: LLMRequest) -> None:
        await asyncio.sleep(60)

    answer = response_of("hello")
    assert (
        in_virtual_time(
            chain_middleware(Scripted(answer), lambda inner: Deadline(inner, lambda: limit(5), loading)).complete(
                request_of()
            )
        )
        is answer
    )
    assert (
        in_virtual_time(
            chain_middleware(Slow(1, 4), lambda inner: Deadline(inner, lambda: limit(5), loading)).complete(
                request_of()
            )
        ).content
        == "late"
    )
