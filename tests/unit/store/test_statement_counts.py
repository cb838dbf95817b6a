"""How many statements the operations of a plain message run, without a session; each number is a limit."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maestro.domain.agent_chat import HUMAN
from maestro.domain.context.composition import Composition
from maestro.domain.deliveries import Delivery, DeliveryPurpose, DeliveryState
from maestro.domain.jobs.flow import ModelStep
from maestro.domain.jobs.job import JobEnding, JobStatus
from maestro.domain.llm.accounts import AccountSource, ModelAccount
from maestro.domain.llm.budgets import BudgetLimit, BudgetScope
from maestro.domain.llm.calls import CallEstimate
from maestro.domain.llm.prompts import PROMPT_TURNS, CallKey, ComposedTurn, LLMRequest, LLMResponse, PromptMessage, Role
from maestro.domain.messages import Address, LaneKey, Receipt
from maestro.store.jobs.steps import StepHistory, use_attempt
from maestro.store.llm.prompts import packed_request
from maestro.store.transaction import Transaction, open_savepoint
from tests.support.job_rows import JobRows
from tests.support.statements import statements

ESTIMATE = CallEstimate("openai", "gpt-4o-mini", 100, 0.25, "main")
ANSWER = LLMResponse(content="hi", model="gpt-4o-mini", provider="openai", account="main", cost_usd=0.5, duration_ms=9)
PLACE = Address(platform="web", channel="general")
SYSTEM, HELLO = "You are Ada. Be brief.", "hello"


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    """Open a store with one account."""
    rows = JobRows.at(tmp_path)
    with rows.store.begin() as tx:
        tx.llm.accounts.add_account(
            ModelAccount(
                name="main",
                provider="openai",
                model="gpt-4o-mini",
                source=AccountSource.API,
                created_at=tx.now,
                updated_at=tx.now,
            )
        )
    yield rows
    rows.store.close()


@pytest.fixture
def key(rows: JobRows) -> CallKey:
    """The first call of a job that runs."""
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, status=JobStatus.RUNNING, client_id=3)
    return CallKey(job_id=job_id, number=1)


def count(rows: JobRows, operation: Callable[[Transaction], object]) -> int:
    """Return how many statements an operation runs; it makes no session."""
    with rows.store.begin() as tx, statements(tx) as found:
        operation(tx)
        assert "session" not in vars(tx._link)
    return len(found)


def request(key: CallKey, words: str = HELLO) -> LLMRequest:
    """Return what a model is asked: instructions that many requests share, and one message."""
    return LLMRequest(
        key=key,
        platform="web",
        model="gpt-4o-mini",
        messages=(
            PromptMessage(role=Role.SYSTEM, content=SYSTEM, stable=len(SYSTEM) - 9),
            PromptMessage(role=Role.USER, content=words),
        ),
        max_output_tokens=10,
    )


def store_texts(tx: Transaction, request: LLMRequest) -> None:
    """Store the texts of the messages of a request, as an earlier request did."""
    for message in request.messages:
        for text in (message.content[: message.stable], message.content[message.stable :]):
            tx.llm.prompts.store_text(text)


def send(tx: Transaction, key: CallKey) -> int:
    """Keep a request as the chain of middleware does, and return the number of the attempt."""
    packed = packed_request(request(key))
    kept = tx.llm.calls.read_rows_before_sending(key, packed.texts.raw)
    assert tx.llm.calls.find_interrupted_request(key) is None
    return tx.llm.calls.record_sending(key, tx.llm.prompts.store_request(packed, kept), ESTIMATE)


def chunk(rows: JobRows, job_id: str) -> Delivery:
    """Return a chunk that is not stored yet."""
    return Delivery(
        job_id=job_id,
        purpose=DeliveryPurpose.ANSWER,
        seq=0,
        content="hi",
        created_at=rows.clock.now,
        **PLACE.model_dump(),
    )


def test_a_prompt_is_kept_in_two_statements_and_read_in_two(rows: JobRows, key: CallKey) -> None:
    turns = (ComposedTurn(Role.SYSTEM, SYSTEM, 14, (), None), ComposedTurn(Role.USER, HELLO, 0, (), None))
    composed = Composition(messages=turns, layers=(), facts=())
    with rows.store.begin() as tx:
        for content in (SYSTEM[:14], SYSTEM[14:], HELLO):
            tx.llm.prompts.store_text(content)
    assert count(rows, lambda tx: tx.llm.prompts.add_prompt(key.job_id, composed)) == 2
    read: list[PromptMessage] = []

    def unpacked(tx: Transaction) -> None:
        read.extend(
            tx.llm.prompts.restore_messages(
                PROMPT_TURNS.validate_json(tx.llm.prompts.get_prompt_of_job(key.job_id).turns)
            )
        )

    assert count(rows, unpacked) == 2
    assert [message.content for message in read] == [SYSTEM, HELLO]


def test_a_request_is_kept_in_three_statements(rows: JobRows, key: CallKey) -> None:
    with rows.store.begin() as tx:
        store_texts(tx, request(key))
        attempt = tx.jobs.steps.begin_attempt(
            ModelStep(job_id=key.job_id, step="model-1", number=1), "call_model", 1, StepHistory(())
        )
    with use_attempt(attempt):
        assert count(rows, lambda tx: send(tx, key)) == 3, "what is asked before, the request, the call"


def test_each_new_text_of_a_request_is_one_more(rows: JobRows, key: CallKey) -> None:
    with rows.store.begin() as tx:
        store_texts(tx, request(key))
    assert count(rows, lambda tx: tx.llm.prompts.store_request(packed_request(request(key, "how are you?")))) == 3
    assert count(rows, lambda tx: tx.llm.prompts.store_request(packed_request(request(key, "how are you?")))) == 1


def test_an_answer_is_kept_in_four_statements_and_counted_for_its_account_in_one(rows: JobRows, key: CallKey) -> None:
    with rows.store.begin() as tx:
        attempt, payer = send(tx, key), tx.jobs.callers.read_payer(key.job_id)

    def keep(tx: Transaction) -> None:
        cost = tx.llm.calls.store_answer(key, attempt, ANSWER, payer)
        assert cost == 0.5
        tx.llm.accounts.record_success("main", "gpt-4o-mini", cost)
        assert tx.llm.calls.get_answer(key).content == ANSWER.content, "it is not read back"

    assert count(rows, keep) == 5, "the call, the usage log, the reservation, the budgets, the account"
    assert count(rows, lambda tx: tx.llm.calls.store_answer(key, attempt, ANSWER)) == 2, "nothing is kept twice"
    with rows.store.view() as tx:
        assert [
            tx.llm.budgets.read_level(scope).spent_usd for scope in tx.jobs.callers.read_payer(key.job_id).scopes
        ] == [0.5] * 3


def test_what_a_call_may_cost_is_reserved_in_two_statements_and_settled_in_two(rows: JobRows, key: CallKey) -> None:
    with rows.store.begin() as tx:
        payer = tx.jobs.callers.read_payer(key.job_id)
    limits = [
        BudgetLimit(BudgetScope.DAY, "", 9.0),
        BudgetLimit(BudgetScope.AGENT, "1", 9.0),
        BudgetLimit(BudgetScope.CLIENT, "3", 9.0),
    ]
    assert count(rows, lambda tx: tx.jobs.callers.read_payer(key.job_id)) == 1
    assert count(rows, lambda tx: tx.llm.budgets.reserve_cost(key, payer, 0.25, limits)) == 2, (
        "the limits are looked at as well"
    )
    assert count(rows, lambda tx: tx.llm.budgets.settle_cost(key, 0.5)) == 2
    assert count(rows, lambda tx: tx.llm.budgets.release_reservation(key)) == 1


def test_what_the_chain_reads_is_one_statement_each(rows: JobRows, key: CallKey) -> None:
    with rows.store.begin() as tx:
        tx.chat.mark_read("ada", tx.chat.add_post(HUMAN, "an old post"))
        newest = tx.chat.add_post(HUMAN, "a new post")
    assert count(rows, lambda tx: tx.llm.accounts.list_with_limits()) == 1
    assert count(rows, lambda tx: tx.llm.calls.find_answer(key)) == 1
    assert count(rows, lambda tx: tx.chat.list_news("ada", key.job_id, 1)) == 1, "the posts, and whether it is reminded"
    with rows.store.view() as tx:
        assert [post.id for post in tx.chat.list_unread("ada").messages] == [newest]


def test_the_facts_that_an_agent_remembers_are_read_in_one_statement(rows: JobRows) -> None:
    assert count(rows, lambda tx: tx.memory.find_best_facts(1, 5)) == 1


def test_a_delivery_begins_in_two_statements_and_its_receipt_is_one(rows: JobRows, key: CallKey) -> None:
    first, second = chunk(rows, key.job_id), chunk(rows, key.job_id)
    second.seq = 1

    def begin(tx: Transaction) -> None:
        start = tx.deliveries.begin_delivery(tx.jobs.read(key.job_id), DeliveryPurpose.ANSWER)
        assert (start.has_lane, start.chunks) == (True, False)
        first.id = tx.deliveries.add_chunk(first, sending=True).id

    assert count(rows, begin) == 3, "the job, the lane with what the delivery begins with, the chunk"
    assert count(rows, lambda tx: tx.deliveries.add_chunk(second)) == 1
    assert (
        count(
            rows, lambda tx: tx.deliveries.mark_sending(second.id or 0, second.build_outgoing(has_more=False).address)
        )
        == 1
    )
    assert count(rows, lambda tx: tx.deliveries.mark_sent(first.id or 0, Receipt(platform_message_id="m"))) == 1
    assert (
        count(
            rows,
            lambda tx: tx.jobs.dependents.read_delivery_progress(key.job_id, DeliveryPurpose.ANSWER, first.id or 0),
        )
        == 1
    )
    assert count(rows, lambda tx: tx.deliveries.list_chunks(key.job_id, DeliveryPurpose.ANSWER)) == 1
    assert count(rows, lambda tx: tx.deliveries.files.list_files_of_job(key.job_id)) == 1
    with rows.store.view() as tx:
        assert [(one.state, one.attempts) for one in tx.deliveries.list_chunks(key.job_id, DeliveryPurpose.ANSWER)] == [
            (DeliveryState.SENT, 1),
            (DeliveryState.SENDING, 1),
        ]


def test_a_job_is_closed_in_three_statements(rows: JobRows, key: CallKey) -> None:
    with rows.store.begin() as tx:
        tx.llm.calls.store_answer(key, send(tx, key), ANSWER)
        tx.deliveries.begin_delivery(tx.jobs.read(key.job_id), DeliveryPurpose.ANSWER)
        only = tx.deliveries.add_chunk(chunk(rows, key.job_id)).id or 0
        tx.deliveries.mark_sent(only, Receipt(platform_message_id="m"))
        dependents = tx.jobs.dependents.read_delivery_progress(key.job_id, DeliveryPurpose.ANSWER, only).dependents
        assert dependents == tx.jobs.dependents.find_kinds(key.job_id)
    completed = JobEnding(status=JobStatus.COMPLETED)
    assert count(rows, lambda tx: tx.jobs.close_job(key.job_id, completed)) == 3, "what hangs on it, its lane, its end"
    assert count(rows, lambda tx: tx.jobs.close_job(key.job_id, completed)) == 2, "it has ended already"
    assert count(rows, lambda tx: tx.jobs.close_job(key.job_id, completed, dependents)) == 2, "its lane, its end"


def test_a_savepoint_is_two_statements(rows: JobRows) -> None:
    def nothing(tx: Transaction) -> None:
        with open_savepoint(tx):
            pass

    assert count(rows, nothing) == 2


def test_the_intake_looks_at_a_place_once_for_each_thing(rows: JobRows) -> None:
    lane = LaneKey("web/general")
    assert count(rows, lambda tx: tx.jobs.questions.list_open_questions(lane)) == 1
    assert count(rows, lambda tx: tx.bots.channels.read_disable_reason(PLACE)) == 1


def test_what_seldom_changes_is_read_once_for_many_transactions(rows: JobRows) -> None:
    def prepared(tx: Transaction) -> None:
        tx.agents.read_binding(PLACE)
        tx.agents.read(1)
        tx.llm.accounts.find_default_model()
        tx.memory.read_states(1)
        tx.conversations.compactions.list_latest_compactions(1, 3)

    assert count(rows, prepared) == 6, "each of them, and the editions they belong to"
    assert count(rows, prepared) == 1, "the editions"
