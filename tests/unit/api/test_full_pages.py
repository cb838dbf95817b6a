"""Pages of lists that are full of the longest there may be: they stay light all the same."""

from collections.abc import AsyncIterator

import httpx
import pytest

from maestro.domain.agents.edits import AgentChange, NewBinding
from maestro.domain.memory.memory import Fact, FactCategory
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent
from tests.unit.api.test_schedules import FORM as SCHEDULE
from tests.unit.api.test_webhooks import FORM as WEBHOOK

MOST_BYTES = 80_000
"""What the style sheets and scripts, 70 kB, leave of the 150 kB that a page may weigh."""
LONG = "The news of the day in a few sentences. "
MOST = 30


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


async def page(http: httpx.AsyncClient, path: str, row: str) -> None:
    """Look at a page that is full."""
    answer = await http.get(path)
    assert answer.status_code == 200
    assert answer.text.count(row) >= 15
    assert len(answer.content) < MOST_BYTES, f"{path} is too heavy"
    assert 'rel="next"' in answer.text


async def test_webhooks_with_long_prompts(http: httpx.AsyncClient) -> None:
    for number in range(MOST):
        form = {**WEBHOOK, "path": f"hook-{number}", "prompt_template": LONG * 400}
        assert (await http.post("/webhooks", data=form)).status_code == 201
    await page(http, "/webhooks", '<tbody id="webhook-')


async def test_schedules_with_long_prompts(http: httpx.AsyncClient) -> None:
    for number in range(MOST):
        form = {**SCHEDULE, "name": f"news-{number}", "channel": "news", "prompt": LONG * 400}
        assert (await http.post("/schedules", data=form)).status_code == 303
    await page(http, "/schedules", '<tbody id="cron-')


async def test_facts_of_all_kinds(rows: JobRows, http: httpx.AsyncClient) -> None:
    with rows.store.begin() as tx:
        for number in range(MOST):
            said = f"{number * 7919:b} {number} {LONG * 3}"
            facts = [Fact(category, said) for category in (FactCategory.STICKY, FactCategory.PROJECT_CONTEXT)]
            tx.memory.learn_facts(tx.agents.get_agent_by_slug("ada").id or 0, facts, conversation_id=None)
    await page(http, "/memory", 'id="fact-')
    await page(http, "/memory?category=sticky", 'id="fact-')


async def test_agents_with_long_descriptions_and_many_channels(rows: JobRows, http: httpx.AsyncClient) -> None:
    for number in range(55):
        add_agent(rows, f"agent-{number:03}")
        with rows.store.begin() as tx:
            agent = tx.agents.get_agent_by_slug(f"agent-{number:03}")
            tx.agents.change(agent, AgentChange(description=(LONG * 50)[:2_000].strip()), "operator")
            for place in range(8):
                new = NewBinding(platform="web", channel=f"channel-{number}-{place}")
                tx.agents.bind_channel(agent, new, "operator")
    await page(http, "/agents", '<tr data-row id="agent-')


async def test_tokens_of_many_agents(rows: JobRows, http: httpx.AsyncClient) -> None:
    for number in range(45):
        add_agent(rows, f"agent-{number}")
        with rows.store.begin() as tx:
            tx.agents.tokens.create_token(
                tx.agents.get_agent_by_slug(f"agent-{number}"), "the laptop at home " * 3, "operator"
            )
    await page(http, "/agents/tokens", 'id="token-')
