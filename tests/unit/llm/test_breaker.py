"""When a provider that fails is left alone, and how it is tried again."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from maestro.domain.errors import MaestroError
from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.calls import (
    AuthenticationFailed,
    BadRequest,
    CircuitOpen,
    EmptyResponse,
    LimiterBusy,
    ModelTimeout,
    ProviderUnavailable,
    RateLimited,
)
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.domain.settings.jobs import JobSettings
from maestro.domain.settings.llm import BreakerSettings, LlmSettings
from maestro.llm.middleware.failover import CircuitBreaker
from maestro.llm.middleware.limits import RateLimit
from maestro.llm.protocols import Account
from tests.support.llm_fakes import Accounts, Held, Scripted, settled
from tests.support.llm_requests import leaks, request_of, response_of

RULES = BreakerSettings(failures=5, open_seconds=30, successes=3)
DOWN = ProviderUnavailable("down")
WELL = response_of("hello")
MAIN = Account("main", "openai", "gpt-4o-mini", requests_per_minute=10)
SAME_PLACE = replace(MAIN, name="second")
ELSEWHERE = replace(MAIN, name="elsewhere", base_url="http://127.0.0.1:1/v1")
COMMAND = Account("command", "anthropic", "claude-sonnet-4-6", AccountType.CLI)
OVER_HTTP = Account("http", "anthropic", "claude-sonnet-4-6")
DIRECTORY = Accounts([MAIN, SAME_PLACE, ELSEWHERE, COMMAND, OVER_HTTP])


class Provider:
    """Fails or answers, as the test sets it."""

    def __init__(self) -> None:
        self.outcome: LLMResponse | Exception = DOWN
        self.asked = 0

    async def complete(self, _: LLMRequest) -> LLMResponse:
        self.asked += 1
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Patient:
    """A breaker around a provider, and its clock."""

    def __init__(self) -> None:
        self.provider = Provider()
        self.now = 1000.0
        self.breaker = CircuitBreaker(self.provider, DIRECTORY, lambda: RULES, lambda: self.now)

    async def ask(self, outcome: LLMResponse | Exception, account: str = "main") -> str:
        """Ask once; return what became of it."""
        self.provider.outcome = outcome
        try:
            return (await self.breaker.complete(to(account))).content
        except MaestroError as error:
            return type(error).__name__

    async def fail(self, times: int = RULES.failures) -> None:
        """Let the provider fail."""
        for _ in range(times):
            assert await self.ask(DOWN) == "ProviderUnavailable"

    async def open_and_rest(self) -> None:
        """Open the circuit and let its time pass."""
        await self.fail()
        self.now += RULES.open_seconds


def to(account: str) -> LLMRequest:
    """A request to an account."""
    return request_of().model_copy(update={"account": account})


@pytest.fixture
def patient() -> Patient:
    return Patient()


async def test_five_failures_in_a_row_open_it_and_nothing_is_asked_for_thirty_seconds(patient: Patient) -> None:
    await patient.fail(5)
    assert await patient.ask(WELL) == "CircuitOpen"
    patient.now += 29.9
    assert await patient.ask(WELL) == "CircuitOpen"
    assert patient.provider.asked == 5
    patient.now += 0.1
    assert await patient.ask(WELL) == "hello"


async def test_a_success_in_between_begins_the_count_anew(patient: Patient) -> None:
    await patient.fail(4)
    await patient.ask(WELL)
    await patient.fail(4)
    assert await patient.ask(WELL) == "hello"


async def test_a_timeout_counts_like_a_failure(patient: Patient) -> None:
    for _ in range(5):
        await patient.ask(ModelTimeout("silence"))
    assert await patient.ask(WELL) == "CircuitOpen"


@pytest.mark.parametrize("kind", [RateLimited, BadRequest, AuthenticationFailed, EmptyResponse, LimiterBusy])
async def test_what_is_not_the_providers_own_failure_counts_neither_way(
    patient: Patient, kind: type[MaestroError]
) -> None:
    await patient.fail(4)
    for _ in range(10):
        assert await patient.ask(kind("no")) == kind.__name__
    assert await patient.ask(DOWN) == "ProviderUnavailable"
    assert await patient.ask(WELL) == "CircuitOpen"


async def test_three_successes_close_it(patient: Patient) -> None:
    await patient.open_and_rest()
    assert [await patient.ask(WELL) for _ in range(3)] == ["hello"] * 3
    await patient.fail(4)
    assert await patient.ask(WELL) == "hello"


async def test_a_failure_while_it_is_tried_again_opens_it_for_the_whole_time(patient: Patient) -> None:
    await patient.open_and_rest()
    await patient.ask(WELL)
    await patient.ask(WELL)
    await patient.fail(1)
    patient.now += 29.9
    assert await patient.ask(WELL) == "CircuitOpen"
    patient.now += 0.1
    assert [await patient.ask(outcome) for outcome in (WELL, WELL, DOWN)] == ["hello", "hello", "ProviderUnavailable"]


async def test_who_meets_an_open_circuit_hears_when_to_come_back(patient: Patient) -> None:
    failures = []
    for _ in range(7):
        patient.provider.outcome = ProviderUnavailable("down")
        with pytest.raises((ProviderUnavailable, CircuitOpen)) as caught:
            await patient.breaker.complete(to("main"))
        failures.append(caught.value)
        patient.now += 1
    *closed, opening, first, second = failures
    assert {failure.instead for failure in closed} == {None}
    assert isinstance(opening.instead, CircuitOpen), "what failed for good waits where its provider is known to be down"
    assert [failure.retry_after for failure in (opening.instead, first, second)] == [
        timedelta(seconds=seconds) for seconds in (30, 29, 28)
    ]


async def test_each_probe_that_succeeds_wakes_those_who_wait_for_the_provider(patient: Patient) -> None:
    woken: list[str] = []
    patient.breaker.recovered = lambda: woken.append("woken")
    await patient.fail()
    assert await patient.ask(WELL) == "CircuitOpen"
    patient.now += RULES.open_seconds
    await patient.ask(WELL)
    assert woken == ["woken"]
    await patient.fail(1)
    patient.now += RULES.open_seconds
    for _ in range(3 + 2):
        await patient.ask(WELL)
    assert len(woken) == 1 + 3, "a closed circuit wakes nobody"


async def test_an_open_circuit_touches_no_limiter_and_does_not_open_for_another_address(patient: Patient) -> None:
    limiter = RateLimit(
        patient.provider, DIRECTORY, lambda: LlmSettings(concurrency=1, limiter_wait_seconds=0.001), JobSettings
    )
    patient.breaker.inner = limiter
    await patient.fail()
    refused = [await patient.ask(WELL, account) for account in ("main", "second") for _ in range(20)]
    assert set(refused) == {"CircuitOpen"}
    assert await patient.ask(WELL, "elsewhere") == "hello"
    patient.now += RULES.open_seconds
    # Of nine requests a minute five have failed: the refused ones have taken nothing.
    assert [await patient.ask(WELL) for _ in range(5)] == ["hello"] * 4 + ["LimiterBusy"]


async def test_the_command_of_a_provider_has_a_circuit_of_its_own(patient: Patient) -> None:
    for _ in range(5):
        await patient.ask(DOWN, "command")
    assert await patient.ask(WELL, "command") == "CircuitOpen"
    assert await patient.ask(WELL, "http") == "hello"


async def test_the_refusal_says_where_and_for_how_long_and_no_secret(patient: Patient) -> None:
    await patient.fail()
    with pytest.raises(
        CircuitOpen, match="openai failed several times in a row and is not called for another 30 s"
    ) as (caught):
        await patient.breaker.complete(to("main"))
    assert caught.value.site is not None
    assert (caught.value.site.provider, caught.value.site.account) == ("openai", "main")
    assert leaks(caught.value) == []


async def test_an_account_that_is_not_here_is_left_to_the_transport() -> None:
    client = Scripted(WELL)
    assert await CircuitBreaker(client, DIRECTORY).complete(to("nobody")) is WELL


class TestProbes:
    """One request at a time tries whether an open circuit may close."""

    @pytest.fixture
    async def held(self, patient: Patient) -> Held:
        await patient.open_and_rest()
        held = Held()
        patient.breaker.inner = held
        return held

    async def test_there_is_only_one_at_a_time(self, patient: Patient, held: Held) -> None:
        probe = asyncio.create_task(patient.breaker.complete(to("main")))
        await settled()
        with pytest.raises(CircuitOpen, match="while one test request"):
            await patient.breaker.complete(to("second"))
        held.end(0)
        await probe
        following = asyncio.create_task(patient.breaker.complete(to("second")))
        await settled()
        held.end(1)
        assert (await following).content == "hello"

    async def test_a_cancelled_one_makes_room_for_the_next(self, patient: Patient, held: Held) -> None:
        probe = asyncio.create_task(patient.breaker.complete(to("main")))
        await settled()
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
        following = asyncio.create_task(patient.breaker.complete(to("main")))
        await settled()
        held.end(1)
        assert (await following).content == "hello"

    async def test_one_that_was_limited_makes_room_and_proves_nothing(self, patient: Patient, held: Held) -> None:
        probe = asyncio.create_task(patient.breaker.complete(to("main")))
        await settled()
        held.end(0, RateLimited("slow down"))
        await asyncio.gather(probe, return_exceptions=True)
        patient.breaker.inner = patient.provider
        assert await patient.ask(WELL) == "hello"
        assert await patient.ask(DOWN) == "ProviderUnavailable"
        assert await patient.ask(WELL) == "CircuitOpen"


@pytest.mark.parametrize("outcome", [DOWN, WELL])
async def test_what_was_under_way_when_it_opened_does_not_count_after_that(
    patient: Patient, outcome: LLMResponse | Exception
) -> None:
    held = Held()
    patient.breaker.inner = held
    late = [asyncio.create_task(patient.breaker.complete(to("main"))) for _ in range(4)]
    await settled()
    patient.breaker.inner = patient.provider
    await patient.open_and_rest()
    await patient.ask(WELL)
    for number in range(4):
        held.end(number, outcome)
    await asyncio.gather(*late, return_exceptions=True)
    # Two more successes of probes are what it still takes.
    assert [await patient.ask(one) for one in (WELL, DOWN, WELL)] == ["hello", "ProviderUnavailable", "CircuitOpen"]
