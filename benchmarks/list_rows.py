"""The rows of jobs, as values for the store of lists."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from benchmarks.list_texts import ANSWERS, ERRORS, QUESTIONS, REASONS, USER_NAMES
from maestro.domain.deliveries import DeliveryPurpose, DeliveryState
from maestro.domain.jobs.job import JobKind, JobStatus, StepState
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.prompts import Role
from maestro.domain.tools import ToolState

DAYS = 90
"""The days over which the jobs are spread."""
KINDS = (JobKind.MESSAGE,) * 16 + (JobKind.HEARTBEAT, JobKind.CRON, JobKind.WEBHOOK, JobKind.DELEGATION)
PLATFORMS = ("web",) * 4 + ("discord",) * 3 + ("slack",) * 2 + ("telegram",)
ENDS = (
    *[JobStatus.COMPLETED] * 91,
    *[JobStatus.FAILED] * 5,
    *[JobStatus.DROPPED] * 2,
    JobStatus.CANCELLED,
    JobStatus.MERGED,
)
MODELS = (
    ("anthropic", "claude-sonnet-4-6", "main"),
    ("anthropic", "claude-haiku-4-5", "main"),
    ("openai", "gpt-4o-mini", "spare"),
    ("ollama", "llama3", "local"),
)
STEPS = {"route": 4, "conversation": 3, "context": 12, "model-1": 2_400, "tags": 5, "deliver": 320}
"""The steps of a message that is answered at once, and the median milliseconds of each."""
TOOLS = ("web_search", "http_fetch", "calculate")

Row = dict[str, Any]


@dataclass(frozen=True)
class Extent:
    """The number of rows of each kind; the starts of jobs are spread evenly over ``DAYS`` days, up to now."""

    jobs: int = 100_000
    messages: int = 1_000_000
    archived: int = 50_000
    conversations: int = 20_000
    agents: int = 50
    clients: int = 8
    facts: int = 50_000
    audited: int = 50_000

    @property
    def lines(self) -> int:
        """Return the number of messages for each job."""
        return self.messages // self.jobs


@dataclass(frozen=True)
class JobProfile:
    """A job with the values that its rows share."""

    number: int
    id: str
    kind: JobKind
    status: JobStatus
    began: datetime
    agent: int
    conversation: int | None
    address: Mapping[str, str]


def draw_job(number: int, extent: Extent, now: datetime, dice: random.Random) -> JobProfile:
    """Return a job with the values that its rows share; the newest jobs are open."""
    kind = dice.choice(KINDS)
    conversation = 1 + (number * 7_919) % extent.conversations
    latest = extent.jobs - number < 50
    began = now - timedelta(days=DAYS) * ((extent.jobs - number) / extent.jobs) - timedelta(seconds=1)
    return JobProfile(
        number,
        f"{kind}-{number:026}",
        kind,
        dice.choice((JobStatus.PENDING, JobStatus.RUNNING, JobStatus.WAITING)) if latest else dice.choice(ENDS),
        began,
        _agent(conversation, extent),
        conversation if kind is JobKind.MESSAGE else None,
        _address(conversation),
    )


def _address(number: int) -> Row:
    platform = PLATFORMS[number % len(PLATFORMS)]
    return {"platform": platform, "account": "default", "channel": f"channel-{number}"}


def _agent(number: int, extent: Extent) -> int:
    """Return an agent; a few have most of the work."""
    return 1 + (number * number) % extent.agents


def conversation_row(number: int, extent: Extent, first: datetime) -> Row:
    """Return a conversation; those with higher numbers have later messages."""
    address = _address(number)
    last = first + timedelta(days=DAYS) * (number / extent.conversations)
    return {
        "id": number,
        "key": f"{_agent(number, extent)}/{address['platform']}/{address['channel']}",
        "agent_id": _agent(number, extent),
        "user_id": f"user-{number % 3_000}",
        "user_name": USER_NAMES[number % len(USER_NAMES)],
        "message_count": extent.messages // extent.conversations,
        "started_at": first,
        "last_message_at": last,
        **address,
    }


def inbox_row(one: JobProfile) -> Row:
    """Return the message that a job answers."""
    return {
        "id": one.number,
        "message_id": f"m-{one.number}",
        "user_id": f"user-{(one.conversation or 0) % 3_000}",
        "user_name": USER_NAMES[(one.conversation or 0) % len(USER_NAMES)],
        "content": QUESTIONS[one.number % len(QUESTIONS)].format(number=one.number),
        "sent_at": one.began,
        "received_at": one.began,
        "job_id": one.id,
        **one.address,
    }


def queue_row(one: JobProfile, extent: Extent, dice: random.Random) -> Row:
    """Return the row of a job."""
    failed = one.status is JobStatus.FAILED
    error = dice.choice(ERRORS) if failed else ""
    ended = one.began + timedelta(milliseconds=dice.lognormvariate(8, 0.6)) if one.status.ended else None
    return {
        "id": one.id,
        "kind": one.kind,
        "status": one.status,
        "lane": f"{one.address['platform']}/{one.address['channel']}",
        "turn": one.number,
        "inbox_id": one.number if one.kind is JobKind.MESSAGE else None,
        "agent_id": one.agent,
        "client_id": 1 + one.agent % extent.clients,
        "conversation_id": one.conversation,
        "error": error,
        "reason": REASONS.get(error, "").format(number=one.number),
        "task": "" if one.kind is JobKind.MESSAGE else QUESTIONS[one.number % len(QUESTIONS)].format(number=one.number),
        "schedule": f"cron-{1 + one.number % 40}" if one.kind in (JobKind.CRON, JobKind.HEARTBEAT) else None,
        "created_at": one.began,
        "claimed_at": one.began + timedelta(milliseconds=dice.expovariate(1 / 40)),
        "started_at": one.began + timedelta(milliseconds=200 + dice.expovariate(1 / 20)),
        "completed_at": ended,
        **one.address,
    }


def step_rows(one: JobProfile, dice: random.Random) -> Iterator[Row]:
    """Yield the steps of a job, up to the one that failed."""
    at = one.began
    for step, usual in STEPS.items():
        last = one.status is JobStatus.FAILED and step == "model-1"
        began, at = at, at + timedelta(milliseconds=usual * dice.lognormvariate(0, 0.5))
        yield {
            "job_id": one.id,
            "step": step,
            "activity": step,
            "run": 1,
            "attempt": 1,
            "state": StepState.FAILED if last else StepState.DONE,
            "started_at": began,
            "finished_at": at,
            "result": "" if last else f'{{"message_id":{one.number},"tokens":{usual}}}',
        }
        if last:
            return


def call_row(one: JobProfile, dice: random.Random) -> Row:
    """Return the columns that the model call of a job and its usage share."""
    provider, model, account = MODELS[dice.randrange(len(MODELS))]
    tokens = dice.randrange(500, 12_000)
    failed = one.status is JobStatus.FAILED
    return {
        "job_id": one.id,
        "purpose": "answer",
        "number": 1,
        "attempt": 1,
        "state": CallState.FAILED if failed else CallState.ANSWERED,
        "provider": provider,
        "model": model,
        "account": account,
        "input_tokens": tokens,
        "output_tokens": 0 if failed else tokens // 20,
        "cached_tokens": tokens // 2,
        "cost_usd": None if provider == "ollama" else 0.0 if failed else tokens * 3e-6,
        "duration_ms": int(dice.lognormvariate(7.6, 0.5)),
        "at": one.began,
    }


def billing_columns(one: JobProfile, extent: Extent) -> Row:
    """Return the agent, client and conversation that a model call is charged to."""
    return {"agent_id": one.agent, "client_id": 1 + one.agent % extent.clients, "conversation_id": one.conversation}


def delivery_row(one: JobProfile) -> Row:
    """Return the delivery of an answer."""
    sent = one.began + timedelta(seconds=3)
    text = ANSWERS[one.number % len(ANSWERS)]
    done = {"state": DeliveryState.SENT, "created_at": sent, "sent_at": sent, "platform_message_id": f"p-{one.number}"}
    return {"job_id": one.id, "purpose": DeliveryPurpose.ANSWER, "seq": 1, "content": text, **done, **one.address}


def tool_row(one: JobProfile) -> Row:
    """Return a tool call."""
    times = {"started_at": one.began, "finished_at": one.began + timedelta(milliseconds=300)}
    place = {"job_id": one.id, "number": 1, "place": 0, "arguments": "digest", "state": ToolState.DONE}
    return {"tool": TOOLS[one.number % len(TOOLS)], **place, **times}


def message_rows(one: JobProfile, extent: Extent, dice: random.Random) -> Iterator[Row]:
    """Yield the messages of a job: those of users, and at most one answer."""
    for position in range(extent.lines):
        answer = position == extent.lines - 1 and one.status is JobStatus.COMPLETED
        text = ANSWERS[dice.randrange(len(ANSWERS))] if answer else QUESTIONS[dice.randrange(len(QUESTIONS))]
        yield _line(one, extent, position, (Role.ASSISTANT if answer else Role.USER, text))


def archived_row(one: JobProfile, extent: Extent) -> Row:
    """Return a message that a compaction has archived; its id differs from those of all others."""
    return _line(one, extent, extent.lines, (Role.USER, QUESTIONS[one.number % len(QUESTIONS)]))


def _line(one: JobProfile, extent: Extent, position: int, message: tuple[Role, str]) -> Row:
    role, text = message
    return {
        "id": one.number * (extent.lines + 1) + position,
        "conversation_id": one.conversation or 1 + one.number % extent.conversations,
        "role": role,
        "content": text.format(number=one.number + position),
        "token_estimate": len(text) // 4,
        "job_id": one.id,
        "created_at": one.began,
    }


def fact_row(number: int, extent: Extent) -> Row:
    """Return a fact of an agent."""
    text = QUESTIONS[number % len(QUESTIONS)].format(number=number)
    return {"agent_id": 1 + number % extent.agents, "content": text, "words": text.lower(), "confidence": 0.8}
