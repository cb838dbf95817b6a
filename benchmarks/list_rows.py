"""The rows that jobs leave behind, as values: what the store of lists is made of."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from benchmarks.list_texts import ANSWERS, ERRORS, PEOPLE, QUESTIONS, REASONS
from maestro.domain.deliveries import DeliveryPurpose, DeliveryState
from maestro.domain.jobs.job import JobKind, JobStatus, StepState
from maestro.domain.llm.calls import CallState
from maestro.domain.llm.prompts import Role
from maestro.domain.tools import ToolState

DAYS = 90
"""How long it took until there were so many."""
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
"""The steps of a message that is answered at once, and milliseconds that each takes in the middle."""
TOOLS = ("web_search", "http_fetch", "calculate")

Row = dict[str, Any]


@dataclass(frozen=True)
class Extent:
    """How many there are; jobs begin evenly over ``DAYS`` days, the last of them now."""

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
        """Return how many messages there are for each job."""
        return self.messages // self.jobs


@dataclass(frozen=True)
class OneJob:
    """A job and what its rows have in common."""

    number: int
    id: str
    kind: JobKind
    status: JobStatus
    began: datetime
    agent: int
    conversation: int | None
    place: Mapping[str, str]


def one_job(number: int, extent: Extent, now: datetime, dice: random.Random) -> OneJob:
    """Return a job, and what its rows have in common; the newest ones are still open."""
    kind = dice.choice(KINDS)
    conversation = 1 + (number * 7_919) % extent.conversations
    latest = extent.jobs - number < 50
    began = now - timedelta(days=DAYS) * ((extent.jobs - number) / extent.jobs) - timedelta(seconds=1)
    return OneJob(
        number,
        f"{kind}-{number:026}",
        kind,
        dice.choice((JobStatus.PENDING, JobStatus.RUNNING, JobStatus.WAITING)) if latest else dice.choice(ENDS),
        began,
        _agent(conversation, extent),
        conversation if kind is JobKind.MESSAGE else None,
        _place(conversation),
    )


def _place(number: int) -> Row:
    platform = PLATFORMS[number % len(PLATFORMS)]
    return {"platform": platform, "account": "default", "channel": f"channel-{number}"}


def _agent(number: int, extent: Extent) -> int:
    """Return an agent; a few of them do most of the work."""
    return 1 + (number * number) % extent.agents


def conversation_row(number: int, extent: Extent, first: datetime) -> Row:
    """Return a conversation; those with higher numbers were spoken in later."""
    place = _place(number)
    last = first + timedelta(days=DAYS) * (number / extent.conversations)
    return {
        "id": number,
        "key": f"{_agent(number, extent)}/{place['platform']}/{place['channel']}",
        "agent_id": _agent(number, extent),
        "user_id": f"user-{number % 3_000}",
        "user_name": PEOPLE[number % len(PEOPLE)],
        "message_count": extent.messages // extent.conversations,
        "started_at": first,
        "last_message_at": last,
        **place,
    }


def inbox_row(one: OneJob) -> Row:
    """Return the message that a job answers."""
    return {
        "id": one.number,
        "message_id": f"m-{one.number}",
        "user_id": f"user-{(one.conversation or 0) % 3_000}",
        "user_name": PEOPLE[(one.conversation or 0) % len(PEOPLE)],
        "content": QUESTIONS[one.number % len(QUESTIONS)].format(number=one.number),
        "sent_at": one.began,
        "received_at": one.began,
        "job_id": one.id,
        **one.place,
    }


def queue_row(one: OneJob, extent: Extent, dice: random.Random) -> Row:
    """Return the row of a job."""
    failed = one.status is JobStatus.FAILED
    error = dice.choice(ERRORS) if failed else ""
    ended = one.began + timedelta(milliseconds=dice.lognormvariate(8, 0.6)) if one.status.ended else None
    return {
        "id": one.id,
        "kind": one.kind,
        "status": one.status,
        "lane": f"{one.place['platform']}/{one.place['channel']}",
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
        **one.place,
    }


def step_rows(one: OneJob, dice: random.Random) -> Iterator[Row]:
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


def call_row(one: OneJob, dice: random.Random) -> Row:
    """Return the columns that the call of a job and its usage have in common."""
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


def charged(one: OneJob, extent: Extent) -> Row:
    """Return whom the call of a job is charged to."""
    return {"agent_id": one.agent, "client_id": 1 + one.agent % extent.clients, "conversation_id": one.conversation}


def delivery_row(one: OneJob) -> Row:
    """Return the text that was sent."""
    sent = one.began + timedelta(seconds=3)
    text = ANSWERS[one.number % len(ANSWERS)]
    done = {"state": DeliveryState.SENT, "created_at": sent, "sent_at": sent, "platform_message_id": f"p-{one.number}"}
    return {"job_id": one.id, "purpose": DeliveryPurpose.ANSWER, "seq": 1, "content": text, **done, **one.place}


def tool_row(one: OneJob) -> Row:
    """Return the call of a tool."""
    times = {"started_at": one.began, "finished_at": one.began + timedelta(milliseconds=300)}
    place = {"job_id": one.id, "number": 1, "place": 0, "arguments": "digest", "state": ToolState.DONE}
    return {"tool": TOOLS[one.number % len(TOOLS)], **place, **times}


def said_rows(one: OneJob, extent: Extent, dice: random.Random) -> Iterator[Row]:
    """Yield what was said around a job: lines of people, and at most one answer."""
    for place in range(extent.lines):
        answer = place == extent.lines - 1 and one.status is JobStatus.COMPLETED
        text = ANSWERS[dice.randrange(len(ANSWERS))] if answer else QUESTIONS[dice.randrange(len(QUESTIONS))]
        yield _line(one, extent, place, (Role.ASSISTANT if answer else Role.USER, text))


def archived_row(one: OneJob, extent: Extent) -> Row:
    """Return a line that a compaction took away; its id is none of those that stayed."""
    return _line(one, extent, extent.lines, (Role.USER, QUESTIONS[one.number % len(QUESTIONS)]))


def _line(one: OneJob, extent: Extent, place: int, said: tuple[Role, str]) -> Row:
    role, text = said
    return {
        "id": one.number * (extent.lines + 1) + place,
        "conversation_id": one.conversation or 1 + one.number % extent.conversations,
        "role": role,
        "content": text.format(number=one.number + place),
        "token_estimate": len(text) // 4,
        "job_id": one.id,
        "created_at": one.began,
    }


def fact_row(number: int, extent: Extent) -> Row:
    """Return something that an agent remembers."""
    text = QUESTIONS[number % len(QUESTIONS)].format(number=number)
    return {"agent_id": 1 + number % extent.agents, "content": text, "words": text.lower(), "confidence": 0.8}
