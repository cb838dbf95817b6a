"""Jobs of every kind in a store, written through its repositories as the flow would write them."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from maestro.domain.agents.agent import Agent, AgentChannel
from maestro.domain.deliveries import Delivery, DeliveryPurpose
from maestro.domain.jobs.flow import ContextOutcome
from maestro.domain.jobs.job import Job, JobEnding, JobKind, JobStatus, StepRef
from maestro.domain.llm.calls import CallEstimate
from maestro.domain.llm.prompts import CallKey, LLMResponse
from maestro.domain.messages import Address, IncomingMessage, Receipt
from maestro.store.store import Store
from tests.support.fresh_store import fresh_store

MORNING = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
SECRET_ANSWER = "the answer that only the person may read"


class Clock:
    """A clock that goes only when it is told to."""

    def __init__(self, now: datetime = MORNING) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def go(self, **length: float) -> None:
        """Let time pass, in the words of ``timedelta``."""
        self.now += timedelta(**length)


@dataclass
class JobRows:
    """A store and its clock, which goes on by a second with each job."""

    store: Store
    clock: Clock

    @classmethod
    def at(cls, folder: Path) -> "JobRows":
        """Open a store in this folder, with one agent called ada."""
        clock = Clock()
        folder.mkdir(parents=True, exist_ok=True)
        rows = cls(fresh_store(folder / "maestro.db", clock), clock)
        with rows.store.begin() as tx:
            agent = tx.agents.save_agent(
                Agent(slug="ada", name="Ada", system_prompt="Be brief.", created_at=tx.now, updated_at=tx.now)
            )
            tx.agents.save_binding(
                AgentChannel(agent_id=agent.id or 0, platform="web", account="default", channel="code")
            )
        return rows

    def add(
        self,
        text: str = "hello",
        *,
        kind: JobKind = JobKind.MESSAGE,
        platform: str = "web",
        user: str = "Grace",
        agent: str | None = "ada",
    ) -> str:
        """Add a pending job and return its id; one of kind message answers a message."""
        self.clock.go(seconds=1)
        address = Address(platform=platform, channel="general")
        with self.store.begin() as tx:
            job_id = f"{kind}-{tx.now:%H%M%S}"
            found = tx.agents.find_agent_by_slug(agent) if agent else None
            message = IncomingMessage(
                id=job_id, address=address, user_id="u-1", user_name=user, content=text, sent_at=tx.now
            )
            row = tx.inbox.add(message, job_id) if kind is JobKind.MESSAGE else None
            tx.jobs.add(
                Job(
                    id=job_id,
                    kind=kind,
                    lane=f"{platform}/general",
                    inbox_id=row.id if row else None,
                    agent_id=found.id if found else None,
                    created_at=tx.now,
                    **address.model_dump(),
                )
            )
        return job_id

    def end(self, job_id: str, status: JobStatus, error: str = "", reason: str = "") -> str:
        """End a job."""
        with self.store.begin() as tx:
            tx.jobs.update_job(job_id, started_at=tx.now)
            tx.jobs.close_job(job_id, JobEnding(status=status, error=error, reason=reason))
        return job_id

    def failed(self, text: str = "hello", error: str = "ProviderDown", reason: str = "the provider is down") -> str:
        """Add a job that ended with an error."""
        return self.end(self.add(text), JobStatus.FAILED, error, reason)

    def worked(self, job_id: str) -> None:
        """Give a job a history: a step, a step that failed and was cut off once, three model calls and two chunks."""
        with self.store.begin() as tx:
            tx.jobs.update_job(job_id, status=JobStatus.RUNNING, started_at=tx.now)
            tx.jobs.steps.start_attempt(StepRef(job_id=job_id, step="context"), "build_context", 1)
        self.clock.go(milliseconds=250)
        with self.store.begin() as tx:
            tx.jobs.steps.finish_step(
                StepRef(job_id=job_id, step="context"), ContextOutcome(prompt_id=1, turns=2, tokens=9)
            )
        self._call(job_id)
        self._send(job_id)

    def _call(self, job_id: str) -> None:
        key, step = CallKey(job_id=job_id, number=1), StepRef(job_id=job_id, step="model-1")
        attempts = [self._attempt(key, step) for _ in range(2)]  # the first one's process died
        with self.store.begin() as tx:
            tx.llm.calls.record_failure(key, attempts[-1], "RateLimited")
            tx.jobs.steps.fail_attempt(step, "RateLimited", "429 from the provider")
        attempt = self._attempt(key, step)
        with self.store.begin() as tx:
            response = LLMResponse(
                content=SECRET_ANSWER,
                model="claude-haiku-4-5",
                provider="anthropic",
                account="main",
                input_tokens=120,
                output_tokens=30,
                cached_tokens=100,
                cost_usd=0.0025,
                duration_ms=900,
                finish_reason="stop",
            )
            tx.llm.calls.store_answer(key, attempt, response)

    def _attempt(self, key: CallKey, step: StepRef) -> int:
        with self.store.begin() as tx:
            tx.jobs.steps.start_attempt(step, "call_model", 1)
            return tx.llm.calls.record_sending(
                key, "digest", CallEstimate("anthropic", "claude-haiku-4-5", 1200, 0.0012)
            )

    def _send(self, job_id: str) -> None:
        with self.store.begin() as tx:
            for seq in (1, 2):
                chunk = tx.deliveries.add_chunk(
                    Delivery(
                        job_id=job_id,
                        purpose=DeliveryPurpose.ANSWER,
                        seq=seq,
                        platform="web",
                        account="default",
                        channel="general",
                        content=SECRET_ANSWER,
                        created_at=tx.now,
                    )
                )
                tx.deliveries.mark_sending(chunk.id or 0, chunk.build_outgoing(has_more=False).address)
                if seq == 1:
                    tx.deliveries.mark_sent(chunk.id or 0, Receipt(platform_message_id="m-1"))
