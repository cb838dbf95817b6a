"""Everything that an operator can do over HTTP, each thing once, on data on which it succeeds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maestro.domain.conversations.conversation import Message
from maestro.domain.jobs.job import JobStatus
from maestro.domain.llm.prompts import Role
from maestro.domain.memory.memory import Fact, FactCategory
from maestro.domain.messages import Address
from tests.support.conversations import talk_with
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent
from tests.support.questions import waiting_approval, waiting_question
from tests.support.skill_texts import skill_text
from tests.support.usage_rows import use
from tests.support.wishes import wish

KNOWN: Mapping[str, str] = {
    "account": "mine",
    "batch_id": "unknown",
    "binding_id": "2",
    "call_id": "1",
    "channel": "100",
    "conversation_id": "1",
    "job_id": "unknown",
    "key": "topic",
    "name": "Initech",
    "number": "1",
    "pairing": "1",
    "path": "deploys",
    "person": "slack:cleo",
    "platform": "discord",
    "question_id": "1",
    "ref": "cron-1",
    "slug": "bob",
    "token_id": "1",
}
"""What stands in paths; a job or a batch that fits is known when the data is there."""

SCHEDULE = {"kind": "cron", "agent": "ada", "schedule": "0 9 * * *", "platform": "web", "channel": "news"}
TYPED_SCHEDULE = {**SCHEDULE, "prompt": "Tell the news.", "name": "evening"}
WEBHOOK = {"path": "deploys", "agent": "ada", "promptTemplate": "{{ payload }}", "platform": "web", "channel": "builds"}
TYPED_WEBHOOK = {"path": "pushes", "agent": "ada", "prompt_template": "go", "channel": "builds", "name": "Pushes"}
DISCORD = {"platform": "discord", "account": "mine", "secrets": {"token": "env:DISCORD_TOKEN"}}
DORA, TEA = {"slug": "dora"}, {"slug": "tea"}
EVERY_JOB = {"action": "restart", "all": "yes", "filter": '{"status": ["cancelled"]}'}
SKILL = skill_text("tea", "tea")
HOURS = {"from": "2026-11-18 00:00", "to": "2026-11-19 23:00"}
MINE, HOOLI, BOB = {"name": "mine"}, {"name": "Hooli"}, {"person": "slack:bob"}
TYPED_ACCOUNT = {**MINE, "provider": "openai", "api_key": "sk-2"}
AT_DISCORD = {"platform": "discord", "account": "mine"}


@dataclass(frozen=True)
class Example:
    """What is sent one way, and what stands in its path where that is not what ``KNOWN`` says."""

    json: Any = None
    form: Mapping[str, str] | None = None
    text: str = ""
    path: Mapping[str, str] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Return the body in httpx's own words."""
        if self.form is not None:
            return {"data": dict(self.form)}
        return {"content": self.text.encode()} if self.text else {"json": self.json} if self.json is not None else {}


def address(path: str, known: Mapping[str, str], example: Example | None = None) -> str:
    """Return a path with what is known in the place of its parameters."""
    values = {**known, **((example.path if example else None) or {})}
    return re.sub(r"{(\w+)(:path)?}", lambda found: values[found[1]], path)


def of(**path: str) -> Example:
    """Return what has no body."""
    return Example(path=path)


EXAMPLES: Mapping[str, Example] = {
    "POST /api/agents": Example({"slug": "cleo", "name": "Cleo", "systemPrompt": "Be kind."}),
    "PATCH /api/agents/{slug}": Example({"voice": "dry"}),
    "POST /api/agents/{slug}/rollback": Example({"version": 1}),
    "POST /api/agents/{slug}/tokens": Example({"name": "laptop"}),
    "DELETE /api/agents/{slug}/tokens/{token_id}": of(),
    "POST /api/bindings": Example({"platform": "slack", "channel": "C1", "agent": "bob"}),
    "PATCH /api/bindings/{binding_id}": Example({"permission": "read_only"}),
    "DELETE /api/bindings/{binding_id}": of(),
    "POST /api/accounts": Example({"name": "mine", "provider": "openai", "model": "gpt-4o-mini", "apiKey": "sk-1"}),
    "PATCH /api/accounts/{name:path}": Example({"priority": 7}, path={"name": "mine"}),
    "DELETE /api/accounts/{name:path}": of(name="mine"),
    "POST /api/clients": Example({"name": "Initech", "plan": "monthly"}),
    "PATCH /api/clients/{name:path}": Example({"dailyBudgetUsd": 5}),
    "DELETE /api/clients/{name:path}": of(),
    "POST /api/connectors": Example(DISCORD),
    "PATCH /api/connectors/{platform}/{account}": Example({"enabled": False}),
    "POST /api/connectors/{platform}/{account}/channels/{channel}/enable": of(),
    "DELETE /api/connectors/{platform}/{account}": of(),
    "POST /api/agents/{slug}/memory/facts": Example({"content": "likes tea"}),
    "PATCH /api/agents/{slug}/memory/facts/{number}": Example({"content": "likes green tea"}, path={"slug": "ada"}),
    "DELETE /api/agents/{slug}/memory/facts/{number}": of(slug="ada"),
    "PUT /api/agents/{slug}/memory/state/{key:path}": Example({"value": "tea"}),
    "DELETE /api/agents/{slug}/memory/state/{key:path}": of(),
    "DELETE /api/agents/{slug}/memory": of(),
    "DELETE /api/agents/{slug}": of(),
    "POST /api/skills": Example(text=SKILL),
    "PATCH /api/skills/{slug}": Example({"enabled": False}, path={"slug": "tea"}),
    "POST /api/skills/try": Example({"message": "tea, please"}),
    "DELETE /api/skills/{slug}": of(slug="tea"),
    "PATCH /api/settings": Example({"routing.messagesPerMinute": 7}),
    "POST /api/pairings/invite": Example({"owner": False}),
    "POST /api/pairings/{pairing}/approve": of(),
    "POST /api/pairings/{pairing}/refuse": of(pairing="2"),
    "DELETE /api/people/{person:path}": of(person="slack:ada"),
    "POST /api/questions/{question_id}/answer": Example({"answer": "blue"}),
    "POST /api/schedules": Example({**SCHEDULE, "name": "morning", "prompt": "Tell the news."}),
    "POST /api/schedules/preview": Example({"schedule": "every 5 m"}),
    "PATCH /api/schedules/{ref}": Example({"enabled": False}),
    "POST /api/schedules/{ref}/trigger": of(),
    "POST /api/schedules/{ref}/backfill": Example({"from": "2026-11-18T00:00:00Z", "to": "2026-11-19T23:00:00Z"}),
    "DELETE /api/schedules/{ref}": of(),
    "POST /api/webhooks": Example(WEBHOOK),
    "PATCH /api/webhooks/{path}": Example({"perMinute": 5}),
    "POST /api/webhooks/{path}/rotate": of(),
    "DELETE /api/webhooks/{path}": of(),
    "POST /api/conversations/{conversation_id}/close": of(),
    "DELETE /api/conversations/{conversation_id}": of(),
    "POST /api/jobs/{job_id}/replay": Example({"mode": "resume"}),
    "POST /api/jobs/{job_id}/cancel": of(),
    "POST /api/jobs/replay": Example({"filter": {"status": ["failed"]}, "mode": "resume"}),
    "POST /api/jobs/batches/{batch_id}/stop": of(),
    "POST /api/jobs/cancel": Example({"filter": {"status": ["pending"]}}),
    "POST /api/chat": Example({"text": "hello"}),
    "POST /api/web/tickets": of(),
    "POST /agents/tokens": Example(form={"agent": "ada", "name": "laptop"}),
    "POST /agents/tokens/revoke": Example(form={"agent": "ada", "number": "2"}),
    "POST /schedules": Example(form=TYPED_SCHEDULE),
    "POST /schedules/change": Example(form={**TYPED_SCHEDULE, "ref": "cron-2", "prompt": "Tell the weather."}),
    "POST /schedules/preview": Example(form=TYPED_SCHEDULE),
    "POST /schedules/pause": Example(form={"ref": "cron-2"}),
    "POST /schedules/resume": Example(form={"ref": "cron-2"}),
    "POST /schedules/run": Example(form={"ref": "cron-2"}),
    "POST /schedules/backfill": Example(form={"ref": "cron-2", **HOURS}),
    "POST /schedules/remove": Example(form={"ref": "cron-2"}),
    "POST /webhooks": Example(form=TYPED_WEBHOOK),
    "POST /webhooks/change": Example(form={**TYPED_WEBHOOK, "per_minute": "7"}),
    "POST /webhooks/rotate": Example(form={"path": "pushes"}),
    "POST /webhooks/disable": Example(form={"path": "pushes"}),
    "POST /webhooks/enable": Example(form={"path": "pushes"}),
    "POST /webhooks/remove": Example(form={"path": "pushes"}),
    "POST /questions/answer": Example(form={"number": "2", "words": "green"}),
    "POST /questions/approve": Example(form={"number": "3"}),
    "POST /questions/refuse": Example(form={"number": "4"}),
    "POST /maestro": Example(form={"text": "hello"}),
    "POST /agents": Example(form={"slug": "dora", "name": "Dora"}),
    "POST /agent/{slug}": Example(form={"name": "Dora", "voice": "dry"}, path=DORA),
    "POST /agent/{slug}/status": Example(form={"status": "paused"}, path=DORA),
    "POST /agent/{slug}/history/{number}/rollback": of(slug="dora"),
    "POST /agent/{slug}/channels": Example(form={"platform": "slack", "channel": "C2"}, path=DORA),
    "POST /agent/{slug}/channels/remove": Example(form={"number": "2"}, path=DORA),
    "POST /memory/facts": Example(form={"agent": "dora", "content": "likes cake"}),
    "POST /memory/facts/change": Example(form={"agent": "dora", "number": "1", "content": "likes lemon cake"}),
    "POST /memory/facts/stick": Example(form={"agent": "dora", "number": "1"}),
    "POST /memory/facts/forget": Example(form={"agent": "dora", "number": "1"}),
    "POST /memory/states": Example(form={"agent": "dora", "key": "topic", "value": "cake"}),
    "POST /memory/states/forget": Example(form={"agent": "dora", "key": "topic"}),
    "POST /memory/clear": Example(form={"agent": "ada"}),
    "POST /agent/{slug}/purge": of(slug="dora"),
    "POST /skills/try": Example(form={"message": "tea, please"}),
    "POST /skills": Example(form={"text": SKILL}),
    "POST /skills/{slug}": Example(form={"text": f"{SKILL}Wait."}, path=TEA),
    "POST /skills/{slug}/disable": of(**TEA),
    "POST /skills/{slug}/enable": of(**TEA),
    "POST /skills/{slug}/remove": of(**TEA),
    "POST /accounts/add": Example(form=TYPED_ACCOUNT),
    "POST /accounts/change": Example(form={**TYPED_ACCOUNT, "priority": "3"}),
    "POST /accounts/disable": Example(form=MINE),
    "POST /accounts/enable": Example(form=MINE),
    "POST /accounts/remove": Example(form=MINE),
    "POST /accounts/connectors/add": Example(form={**AT_DISCORD, "secret_token": "env:DISCORD_TOKEN"}),
    "POST /accounts/connectors/change": Example(form={**AT_DISCORD, "agent": "ada"}),
    "POST /accounts/connectors/disable": Example(form=AT_DISCORD),
    "POST /accounts/connectors/enable": Example(form=AT_DISCORD),
    "POST /accounts/connectors/open-channel": Example(form={**AT_DISCORD, "channel": "200"}),
    "POST /accounts/connectors/remove": Example(form=AT_DISCORD),
    "POST /accounts/pairings/approve": Example(form={"pairing": "2"}),
    "POST /accounts/pairings/refuse": Example(form={"pairing": "3"}),
    "POST /accounts/pairings/invite": Example(form={"owner": "true"}),
    "POST /accounts/people/remove": Example(form=BOB),
    "POST /accounts/clients/add": Example(form=HOOLI),
    "POST /accounts/clients/change": Example(form={**HOOLI, "weight": "2"}),
    "POST /accounts/clients/remove": Example(form=HOOLI),
    "POST /settings/change": Example(form={"key": "routing.messagesPerMinute", "value": "8"}),
    "POST /settings/reset": Example(form={"key": "routing.messagesPerMinute"}),
    "POST /conversations/{conversation_id}/close": of(conversation_id="2"),
    "POST /conversations/{conversation_id}/delete": of(conversation_id="2"),
    "POST /queue/{job_id}/replay/preview": Example(form={"mode": "restart"}),
    "POST /queue/{job_id}/replay": Example(form={"mode": "restart"}),
    "POST /queue/{job_id}/cancel": of(),
    "POST /queue/replay/preview": Example(form=EVERY_JOB),
    "POST /queue/replay": Example(form=EVERY_JOB),
    "POST /queue/batches/{batch_id}/stop": of(),
    "POST /logout": of(),
}
"""In an order in which each finds what it needs, and leaves what the others need."""


def stage(rows: JobRows) -> dict[str, str]:
    """Write data on which each of the examples succeeds once, and return what stands in the paths of its rows."""
    use(rows)
    rows.worked(rows.add("a job with a history", platform="slack"))
    known = {**KNOWN, "job_id": rows.failed("replay me")}
    for number in range(3):
        rows.failed(f"replay us {number}")
    for ask in (waiting_question, waiting_question, waiting_approval, waiting_approval):
        ask(rows)
    for user, code in (("ada", "ABCDEFGH"), ("bob", "BCDEFGHJ"), ("cyd", "CDEFGHJK")):
        wish(rows, user, code)
    add_agent(rows, "bob")
    for channel in ("general", "random"):
        _talk(rows, channel, rows.end(rows.add("hello"), JobStatus.COMPLETED))
    with rows.store.begin() as tx:
        tx.memory.learn_facts(1, [Fact(FactCategory.USER_PREFERENCE, "likes apples")], conversation_id=None)
        for channel in ("100", "200"):
            tx.bots.channels.disable(Address(platform="discord", account="mine", channel=channel), "Missing Access")
    return known


def _talk(rows: JobRows, channel: str, job_id: str) -> None:
    with rows.store.begin() as tx:
        address = Address(platform="web", channel=channel)
        opened = talk_with(tx, 1, address)
        for role, text in ((Role.USER, "hello"), (Role.ASSISTANT, "good morning")):
            tx.conversations.add_message(
                Message(
                    conversation_id=opened.id or 0,
                    role=role,
                    content=text,
                    token_estimate=2,
                    job_id=job_id,
                    created_at=tx.now,
                )
            )
