"""Processes that write to one store as connectors, dispatchers and workers do, until they are killed.

``tests/unit/store/test_many_writers.py`` starts them. Everything between the platform and the store is the product's:
intake, claims, calls, budgets and deliveries, in the transactions and scopes of the activities. The model is a text and
the platform a table; it recognises a message that is sent again by its key, as real ones do.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg

from maestro.domain.agent_chat import HUMAN
from maestro.domain.agents.agent import Agent
from maestro.domain.conversations.conversation import MessageColumns
from maestro.domain.deliveries import Delivery, DeliveryPurpose, DeliveryState
from maestro.domain.jobs.flow import DeliverOutcome
from maestro.domain.jobs.job import Job, JobEnding, JobStatus, StepRef
from maestro.domain.llm.accounts import AccountSource, ModelAccount
from maestro.domain.llm.budgets import BudgetLimit, BudgetScope, Payer
from maestro.domain.llm.calls import CallEstimate
from maestro.domain.llm.prompts import CallKey, LLMResponse, Role
from maestro.domain.messages import Address, IncomingMessage, Receipt
from maestro.domain.precedence import ClaimOrder
from maestro.domain.settings.jobs import RoutingSettings
from maestro.intake.messages import Intake, IntakeRules
from maestro.store.jobs.claims import CLAIM_LAPSES
from maestro.store.store import Store
from maestro.store.transaction import Transaction
from tests.support.doors import EVERYBODY

LANES = 20
PER_LANE = 50
COST_USD = 0.001
PAUSE = 0.02
CLAIMED = 3
POST_EVERY = 10
"""After so many messages of a lane, a post is added to the chat of the agents."""
CHARGED = BudgetLimit(BudgetScope.DAY, "", 1000.0)
PLATFORM = """CREATE TABLE platform (
    place BIGINT GENERATED ALWAYS AS IDENTITY, key TEXT PRIMARY KEY, channel TEXT NOT NULL, content TEXT NOT NULL
)"""


def address_of(lane: int) -> Address:
    return Address(platform="web", channel=f"lane-{lane}")


def open_intake(store: Store) -> Intake:
    """Return the intake of a connector's process, which leaves the jobs to the dispatchers."""
    rules = IntakeRules(LANES * PER_LANE, EVERYBODY, RoutingSettings(messages_per_minute=LANES * PER_LANE))
    return Intake(store, lambda: rules, lambda: None)


def question(lane: int, number: int) -> IncomingMessage:
    """Return a message of a channel."""
    return IncomingMessage(
        id=f"{lane}-{number}",
        address=address_of(lane),
        user_id=f"u-{lane}",
        content=f"question {number}",
        sent_at=datetime.now(UTC),
        is_direct=True,
    )


def prepare(store: Store) -> None:
    """Add what the messages need: an agent and a provider's account."""
    with store.begin() as tx:
        tx.agents.save_agent(Agent(slug="ada", name="Ada", created_at=tx.now, updated_at=tx.now))
        names: dict[str, Any] = {"name": "main", "provider": "openai", "model": "gpt"}
        account = ModelAccount(**names, source=AccountSource.API, created_at=tx.now, updated_at=tx.now)
        tx.llm.accounts._save_objects(account)


def connect(url: str, numbers: list[int]) -> None:
    """Deliver these messages to all channels; after a kill, begin again with the first."""
    intake = open_intake(Store(url))
    for number in numbers:
        for lane in range(LANES):
            intake.accept_message(question(lane, number))


def work(url: str, owner: str, dead: str) -> None:
    """Answer messages until all are answered; first continue the jobs that a killed process has claimed or begun."""
    store = Store(url)
    with psycopg.connect(url, autocommit=True) as platform:
        worker = Worker(store, platform, owner)
        if dead:
            store.write(lambda tx: tx.jobs.release_claims_of([dead]))
            for job_id in worker.begun_by(dead):
                worker.answer(job_id, begun=True)
        order = ClaimOrder(owner=owner)
        while True:
            with store.begin(claims=True) as tx:
                claimed = tx.jobs.claim_jobs(CLAIMED, tx.now - CLAIM_LAPSES, order)
            for one in claimed:
                worker.answer(one.id)
            if not claimed:
                time.sleep(PAUSE)


@dataclass
class Worker:
    """Answers jobs, each step in a transaction of the job's scope."""

    store: Store
    platform: psycopg.Connection[tuple[object, ...]] | None
    owner: str

    def begun_by(self, owner: str) -> list[str]:
        """Return the jobs that a killed process has begun, and take them over."""
        assert self.platform is not None
        changed = self.platform.execute(
            "UPDATE queue SET claimed_by = %s WHERE claimed_by = %s AND status = 'running' RETURNING id",
            (self.owner, owner),
        )
        return [str(job_id) for (job_id,) in changed.fetchall()]

    def answer(self, job_id: str, *, begun: bool = False) -> None:
        """Do what is left of a job, unless another process has begun it since it was claimed."""
        if not self.store.widen_scope(partial(self._record_message, job_id, begun)):
            return
        chunk = self._stored_chunk(job_id)
        if chunk is None:
            attempt = self._commit_request(job_id)
            while (chunk := self.store.widen_scope(partial(self._commit_answer, job_id, attempt))) is None:
                time.sleep(PAUSE)
        if self.platform is not None:
            self.platform.execute(
                "INSERT INTO platform (key, channel, content) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                (chunk.key, chunk.channel, chunk.content),
            )
        self._settle(job_id, chunk)

    def _record_message(self, job_id: str, begun: bool) -> bool:
        with self.store.begin(job=job_id) as tx:
            if not begun and tx.jobs.mark_started(job_id) is None:
                return False
            tx.jobs.update_job(job_id, claimed_by=self.owner)
            job = tx.jobs.read(job_id)
            row = tx.inbox.read(job.inbox_id)
            agent = tx.agents.find_agent_by_slug("ada")
            assert agent is not None
            if tx.conversations.restore_recorded_message(row.id) is None:
                conversation = tx.conversations.find_or_begin(agent.id or 0, row, keyed_by_user=False)
                message = _message(tx, job, conversation.id or 0, Role.USER, row.content)
                tx.conversations.add_message(message)
                tx.jobs.update_later(job_id, agent_id=agent.id, conversation_id=conversation.id)
            for text in ("the text of all prompts", "another one", f"the text of {job.channel}"):
                tx.llm.prompts.store_text(text)
            return True

    def _stored_chunk(self, job_id: str) -> Delivery | None:
        with self.store.view() as tx:
            return next(iter(tx.deliveries.list_chunks(job_id, DeliveryPurpose.ANSWER)), None)

    def _commit_request(self, job_id: str) -> int:
        with self.store.begin(job=job_id) as tx:
            key, job = CallKey(job_id=job_id, number=1), tx.jobs.read(job_id)
            digest = tx.llm.prompts.store_text(f"the request of {job_id}")
            tx.llm.calls.find_interrupted_request(key)
            attempt = tx.llm.calls.record_sending(key, digest, CallEstimate("openai", "gpt", 10, COST_USD))
            assert tx.llm.budgets.reserve_cost(key, _payer(job), COST_USD, [CHARGED]) is None
            return attempt

    def _commit_answer(self, job_id: str, attempt: int) -> Delivery | None:
        with self.store.begin(job=job_id) as tx:
            job, key = tx.jobs.read(job_id), CallKey(job_id=job_id, number=1)
            answer = f"answer to {tx.inbox.read(job.inbox_id).content}"
            start = tx.deliveries.begin_delivery(job, DeliveryPurpose.ANSWER)
            if not start.has_lane:
                return None
            cost = tx.llm.calls.store_answer(key, attempt, _response(answer), _payer(job))
            if cost is not None:
                tx.llm.accounts.record_success("main", "gpt", cost)
            tx.conversations.add_message(_message(tx, job, job.conversation_id or 0, Role.ASSISTANT, answer))
            tx.jobs.steps.start_attempt(StepRef(job_id=job_id, step="deliver"), "deliver", job.run)
            return tx.deliveries.add_chunk(
                Delivery(
                    job_id=job_id,
                    purpose=DeliveryPurpose.ANSWER,
                    seq=1,
                    content=answer,
                    state=DeliveryState.PENDING,
                    created_at=tx.now,
                    **job.address.model_dump(),
                ),
                sending=True,
            )

    def _settle(self, job_id: str, chunk: Delivery) -> None:
        with self.store.begin(job=job_id) as tx:
            tx.deliveries.mark_sent(chunk.id or 0, Receipt(platform_message_id=chunk.key))
            tx.jobs.close_job(job_id, JobEnding(status=JobStatus.COMPLETED))
            tx.jobs.steps.finish_step(StepRef(job_id=job_id, step="deliver"), DeliverOutcome(chunks=1))
        if int(chunk.content.rsplit(" ", 1)[1]) % POST_EVERY == 0:
            with self.store.begin() as tx:
                tx.chat.add_post(HUMAN, chunk.content)


def _payer(job: Job) -> Payer:
    return Payer(agent_id=job.agent_id, agent="ada", conversation_id=job.conversation_id)


def _message(tx: Transaction, job: Job, conversation_id: int, role: Role, content: str) -> MessageColumns:
    return MessageColumns(
        conversation_id=conversation_id,
        role=role,
        content=content,
        token_estimate=1,
        inbox_id=job.inbox_id if role is Role.USER else None,
        job_id=job.id,
        has_files=False,
        created_at=tx.now,
    )


def _response(content: str) -> LLMResponse:
    return LLMResponse(
        content=content,
        provider="openai",
        model="gpt",
        account="main",
        input_tokens=1,
        output_tokens=1,
        cached_tokens=0,
        cost_usd=COST_USD,
        duration_ms=1,
        finish_reason="stop",
    )
