"""What an account may take a minute and at once; time is virtual and begins at 0."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from maestro.domain.llm.calls import LimiterBusy, ProviderUnavailable, RequestTooLarge
from maestro.domain.llm.models import estimate_input
from maestro.domain.llm.prompts import CallKey, LLMRequest, LLMResponse
from maestro.domain.precedence import Precedence, Priority
from maestro.domain.settings.jobs import JobSettings
from maestro.domain.settings.llm import LlmSettings
from maestro.llm.middleware.limits import AccountLimiter, RateLimit
from maestro.llm.protocols import Account
from tests.support.llm_fakes import Accounts, settled
from tests.support.llm_requests import leaks, request_of, response_of
from tests.support.virtual_time import seconds, virtual_time

RULES = LlmSettings(concurrency=4, reserved_for_people=1, limiter_wait_seconds=30)
FREE = Account("main", "openai", "gpt-4o-mini")
ONE_AT_ONCE = replace(FREE, concurrency=1)
TWO_AT_ONCE = replace(FREE, concurrency=2)
PROMPT = estimate_input(request_of())

NOBODY = Precedence()
A, B, HEAVY = Precedence(key="client:1"), Precedence(key="client:2"), Precedence(key="client:3", weight=5.0)

Asked = asyncio.Task[LLMResponse]


class Calls:
    """A limiter, and behind it calls that go on until the test ends them; each is known by a name."""

    def __init__(self, account: Account, rules: LlmSettings = RULES, *, fair: bool = True) -> None:
        self.rules = rules
        self.directory = Accounts([account, replace(account, name="other")])
        self.limiter = RateLimit(self, self.directory, lambda: self.rules, lambda: JobSettings(fairness=fair))
        self.began: list[tuple[str, float]] = []
        self._open: dict[str, asyncio.Future[LLMResponse]] = {}

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Be the provider: note when a call came and wait for its end."""
        name = request.key.job_id
        self.began.append((name, round(seconds(), 3)))
        self._open[name] = asyncio.get_running_loop().create_future()
        return await self._open[name]

    async def ask(
        self, name: str, *, tokens: int = 0, account: str = "main", background: bool = False, of: Precedence = NOBODY
    ) -> Asked:
        """Begin a call that needs so many tokens in all, and let it come as far as it may."""
        changes = {
            "key": CallKey(job_id=name, number=1),
            "account": account,
            "precedence": Precedence(priority=Priority.SCHEDULED) if background else of,
            "max_output_tokens": max(1, tokens - PROMPT),
        }
        task = asyncio.create_task(self.limiter.complete(request_of().model_copy(update=changes)))
        await settled()
        return task

    async def end(self, name: str, failure: Exception | None = None) -> None:
        """End a call, well or with a failure."""
        if failure is None:
            self._open[name].set_result(response_of("hello"))
        else:
            self._open[name].set_exception(failure)
        await settled()

    @property
    def names(self) -> list[str]:
        """Who was let through, in that order."""
        return [name for name, _ in self.began]

    @property
    def times(self) -> list[float]:
        """When each was let through."""
        return [at for _, at in self.began]


class TestAtOnce:
    """So many calls at the same time."""

    @virtual_time
    async def test_more_wait_and_come_in_the_order_they_asked(self) -> None:
        calls = Calls(TWO_AT_ONCE)
        for name in "abcd":
            await calls.ask(name)
        assert calls.names == ["a", "b"]
        await calls.end("b")
        await calls.end("a")
        assert calls.names == ["a", "b", "c", "d"]

    @virtual_time
    async def test_an_account_without_a_limit_of_its_own_has_the_general_one(self) -> None:
        calls = Calls(FREE)
        for name in "abcde":
            await calls.ask(name)
        assert calls.names == ["a", "b", "c", "d"]

    @virtual_time
    async def test_each_account_has_its_own_room(self) -> None:
        calls = Calls(ONE_AT_ONCE)
        await calls.ask("a")
        await calls.ask("b", account="other")
        assert calls.names == ["a", "b"]

    @virtual_time
    async def test_a_place_is_given_back_after_a_failure_and_after_a_cancellation(self) -> None:
        calls = Calls(ONE_AT_ONCE)
        failing, cancelled, _ = [await calls.ask(name) for name in "abc"]
        await calls.end("a", ProviderUnavailable("down"))
        assert isinstance(failing.exception(), ProviderUnavailable)
        assert calls.names == ["a", "b"]
        cancelled.cancel()
        await settled()
        assert calls.names == ["a", "b", "c"]

    @virtual_time
    async def test_who_gives_up_waiting_takes_no_place(self) -> None:
        calls = Calls(ONE_AT_ONCE)
        _, waiting, _ = [await calls.ask(name) for name in "abc"]
        waiting.cancel()
        await settled()
        await calls.end("a")
        assert calls.names == ["a", "c"]

    @virtual_time
    async def test_who_is_cancelled_when_just_let_in_gives_the_place_on(self) -> None:
        gate = AccountLimiter(ONE_AT_ONCE, LlmSettings())
        first = await gate.wait_for_slot(0, Precedence(), seconds=30)
        second, third = [asyncio.create_task(gate.wait_for_slot(0, Precedence(), seconds=30)) for _ in range(2)]
        await settled()
        assert first is not None
        gate.free_slot(first)
        second.cancel()
        assert await third is not None
        assert second.cancelled()

    @virtual_time
    async def test_after_the_longest_wait_the_account_is_busy(self) -> None:
        calls = Calls(ONE_AT_ONCE)
        await calls.ask("a")
        with pytest.raises(LimiterBusy, match="admitted no request within 30 s") as caught:
            await (await calls.ask("b"))
        assert seconds() == pytest.approx(30)
        assert caught.value.retry_after == timedelta(seconds=30)
        assert caught.value.site is not None
        assert caught.value.site.account == "main"
        assert leaks(caught.value) == []
        await calls.end("a")
        await calls.ask("c")
        assert calls.names == ["a", "c"]

    @virtual_time
    async def test_a_limit_that_is_raised_counts_for_the_next(self) -> None:
        calls = Calls(FREE, LlmSettings(concurrency=1, reserved_for_people=1))
        await calls.ask("a")
        await calls.ask("b")
        calls.rules = RULES
        await calls.ask("c")
        assert sorted(calls.names) == ["a", "b", "c"]


class TestPeopleFirst:
    """Work that no person waits for leaves room for people, and waits for them."""

    @virtual_time
    async def test_background_work_leaves_places_free(self) -> None:
        calls = Calls(FREE, LlmSettings(concurrency=4, reserved_for_people=2))
        for name in ("b1", "b2", "b3"):
            await calls.ask(name, background=True)
        await calls.ask("p1")
        await calls.ask("p2")
        assert calls.names == ["b1", "b2", "p1", "p2"]
        await calls.end("p1")
        assert calls.names == ["b1", "b2", "p1", "p2"]
        await calls.end("b1")
        assert calls.names[-1] == "b3"

    @virtual_time
    async def test_it_may_always_have_one_place(self) -> None:
        calls = Calls(ONE_AT_ONCE)
        await calls.ask("b1", background=True)
        assert calls.names == ["b1"]

    @virtual_time
    async def test_a_person_overtakes_waiting_background_work(self) -> None:
        calls = Calls(ONE_AT_ONCE)
        await calls.ask("p1")
        await calls.ask("b1", background=True)
        await calls.ask("p2")
        await calls.end("p1")
        await calls.end("p2")
        assert calls.names == ["p1", "p2", "b1"]

    @virtual_time
    async def test_it_never_overtakes_a_person_who_waits_for_tokens(self) -> None:
        calls = Calls(replace(FREE, tokens_per_minute=6000))  # 5400 at once, 100 a second
        await calls.ask("p1", tokens=5400)
        await calls.ask("p2", tokens=2000)
        await calls.ask("b1", tokens=PROMPT + 1, background=True)
        assert calls.names == ["p1"]
        await asyncio.sleep(25)
        assert calls.names == ["p1", "p2", "b1"]
        assert calls.times[1] == 20


class TestShares:
    """Among calls of one priority each client or channel has its turn."""

    @virtual_time
    async def test_a_flood_of_one_does_not_keep_another_waiting(self) -> None:
        calls = Calls(ONE_AT_ONCE)
        for number in range(50):
            await calls.ask(f"a{number}", of=A)
        await calls.ask("b0", of=B)
        await calls.ask("b1", of=B)
        for name in ("a0", "a1", "b0", "a2"):
            await calls.end(name)
        assert calls.names == ["a0", "a1", "b0", "a2", "b1"]

    @virtual_time
    async def test_weights_are_kept(self) -> None:
        calls = Calls(ONE_AT_ONCE)
        await calls.ask("first")
        for number in range(40):
            await calls.ask(f"b{number}", of=B)
            await calls.ask(f"heavy{number}", of=HEAVY)
        for _ in range(24):
            await calls.end(calls.names[-1])
        assert Counter(name[0] for name in calls.names[1:]) == {"h": 20, "b": 4}

    @virtual_time
    async def test_priority_comes_before_any_share(self) -> None:
        calls = Calls(ONE_AT_ONCE)
        for number in range(3):
            await calls.ask(f"a{number}", of=A)
        for name, priority in (("message", 5), ("conductor", 3), ("owner", 1), ("delegation", 4)):
            await calls.ask(name, of=B.model_copy(update={"priority": priority}))
        for _ in range(6):
            await calls.end(calls.names[-1])
        assert calls.names == ["a0", "owner", "conductor", "delegation", "a1", "message", "a2"]

    @virtual_time
    async def test_those_who_gave_up_had_no_turn(self) -> None:
        calls = Calls(ONE_AT_ONCE)
        await calls.ask("first")
        leaving = [await calls.ask(f"a{number}", of=A) for number in range(10)]
        await calls.ask("a10", of=A)
        await calls.ask("b0", of=B)
        await calls.ask("b1", of=B)
        for task in leaving:
            task.cancel()
        await settled()
        for _ in range(3):
            await calls.end(calls.names[-1])
        assert sorted(calls.names[1:3]) == ["a10", "b0"]
        assert calls.names[3] == "b1"

    @virtual_time
    async def test_without_fairness_first_come_is_first_served(self) -> None:
        calls = Calls(ONE_AT_ONCE, fair=False)
        for name, of in (("a0", A), ("a1", A), ("a2", A), ("b0", B)):
            await calls.ask(name, of=of)
        for name in ("a0", "a1", "a2"):
            await calls.end(name)
        assert calls.names == ["a0", "a1", "a2", "b0"]


class TestPerMinute:
    """So many requests and tokens a minute."""

    @virtual_time
    async def test_nine_tenths_of_the_requests_may_come_at_once_and_the_others_evenly(self) -> None:
        calls = Calls(replace(FREE, requests_per_minute=20, concurrency=100))
        for number in range(21):
            await calls.ask(str(number))
        await asyncio.sleep(30)
        assert calls.times == [0.0] * 18 + [3, 6, 9]

    @virtual_time
    async def test_a_limit_of_one_a_minute_admits_one_a_minute(self) -> None:
        calls = Calls(replace(FREE, requests_per_minute=1), LlmSettings(limiter_wait_seconds=90))
        await calls.ask("a")
        await calls.ask("b")
        await asyncio.sleep(61)
        assert calls.times == [0, 60]

    @virtual_time
    async def test_prompt_and_answer_count_together(self) -> None:
        calls = Calls(replace(FREE, tokens_per_minute=6000))  # 5400 at once, 100 a second
        for name in "abc":
            await calls.ask(name, tokens=2700)
        assert calls.names == ["a", "b"]
        await asyncio.sleep(30)
        assert calls.began[2] == ("c", 27)

    @virtual_time
    async def test_tokens_are_not_given_back_when_a_call_ends(self) -> None:
        calls = Calls(replace(FREE, tokens_per_minute=6000))
        await calls.ask("a", tokens=5400)
        await calls.end("a", ProviderUnavailable("down"))
        await calls.ask("b", tokens=1000)
        await asyncio.sleep(11)
        assert calls.began[1] == ("b", 10)

    @virtual_time
    async def test_a_place_that_is_free_is_not_taken_without_the_tokens(self) -> None:
        calls = Calls(replace(ONE_AT_ONCE, tokens_per_minute=6000))
        await calls.ask("a", tokens=5400)
        await calls.end("a")
        waiting = await calls.ask("b", tokens=2000)
        waiting.cancel()
        await settled()
        await asyncio.sleep(5)
        await calls.ask("c", tokens=500)
        assert calls.began[1] == ("c", 5)  # what b waited for in vain is there for others

    @virtual_time
    async def test_a_small_request_does_not_starve_a_large_one(self) -> None:
        calls = Calls(replace(FREE, tokens_per_minute=6000))
        await calls.ask("a", tokens=5400)
        await calls.ask("large", tokens=2000)
        await asyncio.sleep(10)
        await calls.ask("small", tokens=300)
        assert calls.names == ["a"]
        await asyncio.sleep(20)
        assert calls.began[1:] == [("large", 20), ("small", 23)]

    @virtual_time
    async def test_who_gives_up_holds_up_nobody(self) -> None:
        calls = Calls(replace(FREE, tokens_per_minute=6000))
        await calls.ask("a", tokens=4400)
        large = await calls.ask("large", tokens=2000)
        await calls.ask("small", tokens=300)
        assert calls.names == ["a"]
        large.cancel()
        await settled()
        assert calls.began[1:] == [("small", 0)]

    @virtual_time
    async def test_what_can_never_fit_fails_at_once(self) -> None:
        calls = Calls(replace(FREE, tokens_per_minute=6000))
        with pytest.raises(RequestTooLarge, match=r"5400 tokens .* answer need 5401") as caught:
            await (await calls.ask("a", tokens=5401))
        assert seconds() == 0
        assert leaks(caught.value) == []
        await calls.ask("b", tokens=5400)
        assert calls.names == ["b"]

    @virtual_time
    async def test_nobody_waits_when_there_will_be_no_room_in_time(self) -> None:
        calls = Calls(replace(FREE, tokens_per_minute=6000))
        await calls.ask("a", tokens=5400)
        with pytest.raises(LimiterBusy):
            await (await calls.ask("b", tokens=3100))
        assert seconds() == 0

    @virtual_time
    async def test_a_changed_limit_counts_for_what_was_used_already(self) -> None:
        calls = Calls(replace(FREE, tokens_per_minute=6000))
        await calls.ask("a", tokens=5400)
        calls.directory.accounts["main"] = replace(FREE, tokens_per_minute=12000)
        await calls.ask("b", tokens=5400)
        assert calls.names == ["a", "b"]


@virtual_time
async def test_an_account_that_is_not_here_is_left_to_the_transport() -> None:
    calls = Calls(ONE_AT_ONCE)
    for name in "ab":
        await calls.ask(name, account="nobody")
    assert calls.names == ["a", "b"]
