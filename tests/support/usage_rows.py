"""Model calls of several days, agents and clients, as the chain would have left them."""

from maestro.domain.llm.budgets import NewClient
from maestro.domain.llm.calls import CallEstimate, Expense
from maestro.domain.llm.prompts import CallKey, LLMResponse, ToolCall, Usage
from tests.support.job_rows import JobRows

ESTIMATE = CallEstimate("anthropic", "claude-haiku-4-5", 40, 0.125, "main")
NOTHING_SAID = Expense(Usage(input_tokens=50), 0.25)


def use(rows: JobRows) -> None:
    """Two days: the first with a paid answer for Acme, the second with one each that failed, was free and cut off."""
    with rows.store.begin() as tx:
        acme = tx.users.clients.set_configured(NewClient(name="Acme", daily_budget_usd=2)).id
        tx.users.clients.create_client(NewClient(name="Globex"), "operator")
    job_id = rows.add()
    with rows.store.begin() as tx:
        tx.jobs.update_job(job_id, client_id=acme)
    answered(rows, job_id, 0.5)
    rows.clock.go(days=1)
    answered(rows, rows.add(agent=None), None, account="spare")
    cut_off(rows, rows.add())
    failed(rows, rows.add())


def answered(
    rows: JobRows, job_id: str, usd: float | None, account: str = "main", tools: tuple[ToolCall, ...] = ()
) -> None:
    """Let a job be answered by an account; the one called spare has a model of its own."""
    key = CallKey(job_id=job_id, number=1)
    response = LLMResponse(
        content="hello",
        tool_calls=tools,
        model="claude-haiku-4-5" if account == "main" else "llama3",
        provider="anthropic",
        account=account,
        input_tokens=100,
        output_tokens=10,
        cached_tokens=60,
        cost_usd=usd,
        duration_ms=5,
    )
    with rows.store.begin() as tx:
        tx.llm.calls.store_answer(key, tx.llm.calls.record_sending(key, "digest", ESTIMATE), response)


def cut_off(rows: JobRows, job_id: str) -> None:
    """Let a call of a job be broken off."""
    key = CallKey(job_id=job_id, number=1)
    with rows.store.begin() as tx:
        tx.llm.calls.record_interruption(key, tx.llm.calls.record_sending(key, "digest", ESTIMATE))


def failed(rows: JobRows, job_id: str) -> None:
    """Let a call of a job fail that was paid all the same."""
    key = CallKey(job_id=job_id, number=1)
    with rows.store.begin() as tx:
        tx.llm.calls.record_failure(
            key, tx.llm.calls.record_sending(key, "digest", ESTIMATE), "EmptyResponse", NOTHING_SAID
        )
