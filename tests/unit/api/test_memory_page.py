"""The page of what agents remember: facts and states are shown, looked for, told, changed and forgotten."""

import html
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from maestro.domain.memory.memory import Fact, FactCategory
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import JobRows
from tests.support.outside import add_agent
from tests.unit.api.test_conversations import talk

PAGE = "/memory"
XSS = "<img src=x onerror=alert(1)>"
FACT = re.compile(r'<tr data-row id="fact-(\d+)"')


@pytest.fixture
async def http(rows: JobRows) -> AsyncIterator[httpx.AsyncClient]:
    """Talk to the dashboard as the operator."""
    async with client(app_of(rows), auth=BASIC) as http:
        yield http


def learn(rows: JobRows, *facts: tuple[FactCategory, str], source: int | None = None, place: str = "") -> None:
    with rows.store.begin() as tx:
        agent = tx.agents.get_agent_by_slug("ada")
        tx.memory.learn_facts(
            agent.id or 0, [Fact(*fact) for fact in facts], conversation_id=source, memory_scope=place, confidence=0.8
        )


def known(rows: JobRows) -> dict[int, tuple[str, str, float]]:
    with rows.store.view() as tx:
        facts = tx.memory.search_facts(1, "", 100)
    return {one.id or 0: (one.category, one.content, one.confidence) for one in facts}


async def done(http: httpx.AsyncClient, path: str, word: str, **data: str) -> str:
    """Send a form that is obeyed, and return the page it leads to."""
    led = await http.post(f"{PAGE}/{path}", data={"agent": "ada", **data})
    assert (led.status_code, led.headers.get("Location")) == (303, f"{PAGE}?agent=ada&done={word}"), led.text
    return html.unescape((await http.get(led.headers["Location"])).text)


async def test_an_agent_that_knows_nothing_says_what_to_do(http: httpx.AsyncClient) -> None:
    page = (await http.get(PAGE)).text
    assert "No facts yet." in page
    assert "Add a fact" in page


async def test_sticky_facts_come_first_and_the_others_by_what_they_are_about(
    rows: JobRows, http: httpx.AsyncClient
) -> None:
    learn(rows, (FactCategory.STICKY, "Never deploy on Fridays"), (FactCategory.PROJECT_CONTEXT, "The build uses uv"))
    learn(rows, (FactCategory.IMPORTANT_EVENT, "The database moved in May"))
    assert FACT.findall((await http.get(PAGE)).text) == ["1", "3", "2"]
    assert FACT.findall((await http.get(PAGE, params={"category": "project_context"})).text) == ["2"]
    assert FACT.findall((await http.get(PAGE, params={"q": "datab"})).text) == ["3"]
    assert "No fact matches." in (await http.get(PAGE, params={"q": "swan"})).text
    for query in ({"category": "banana"}, {"cursor": "banana"}, {"source": "-1"}):
        assert (await http.get(PAGE, params=query)).status_code == 400
    assert (await http.get(PAGE, params={"agent": "nobody"})).status_code == 404


async def test_pages_of_facts_miss_nothing(rows: JobRows, http: httpx.AsyncClient) -> None:
    learn(rows, *((FactCategory.LEARNED_PATTERN, f"{chr(97 + n // 26)}{chr(97 + n % 26)} " * 5) for n in range(20)))
    learn(rows, (FactCategory.STICKY, "Never deploy on Fridays"))
    page = (await http.get(PAGE)).text
    (following,) = re.findall(r'href="([^"]+)">Next page', page)
    rest = (await http.get(html.unescape(following))).text
    assert FACT.findall(page) + FACT.findall(rest) == ["21", *map(str, range(20, 0, -1))]


async def test_pages_of_what_is_kept_miss_nothing(rows: JobRows, http: httpx.AsyncClient) -> None:
    with rows.store.begin() as tx:
        for number in range(15):
            for place in ("", "web/default/general"):
                assert not tx.memory.set_state(1, f"key-{number:02}", "x" * 2_000, place)
    found, path = [], PAGE
    while path:
        page = (await http.get(path)).text
        found += re.findall(r'<tr data-row id="state-(\d+)"', page)
        path = html.unescape(next(iter(re.findall(r'href="([^"#]+)#states">More', page)), ""))
    assert found == [str(number + 1) for number in range(30)]
    for nonsense in ("banana", "999", "9" * 30):
        assert "key-00" in (await http.get(PAGE, params={"kept": nonsense})).text


async def test_a_fact_tells_where_it_was_learned(rows: JobRows, http: httpx.AsyncClient) -> None:
    number = talk(rows, "hello")
    learn(rows, (FactCategory.STICKY, "Grace likes tea"), source=number, place="1/web/default/general//")
    learn(rows, (FactCategory.STICKY, "Alan likes coffee"))
    page = (await http.get(PAGE)).text
    assert f'href="/conversations/{number}?fact=1#fact-1"' in page
    assert "only in" in page
    assert "80 %" in page
    assert FACT.findall((await http.get(PAGE, params={"source": str(number)})).text) == ["1"]
    listed = (await http.get("/api/agents/ada/memory", params={"source": number})).json()["items"]
    assert [one["id"] for one in listed] == [1]
    others = (await http.get("/api/agents/ada/memory?sticky=false")).json()["items"]
    assert others == []


async def test_a_fact_is_told_once(rows: JobRows, http: httpx.AsyncClient) -> None:
    page = await done(http, "facts", "added", content=f"Grace likes {XSS} tea", category="sticky")
    assert "The fact was added" in page
    assert "<img" not in (await http.get(PAGE)).text
    assert known(rows)[1] == ("sticky", f"Grace likes {XSS} tea", 1.0)
    again = await http.post(f"{PAGE}/facts", data={"agent": "ada", "content": "Grace likes tea!", "category": "sticky"})
    same = await http.post(
        f"{PAGE}/facts", data={"agent": "ada", "content": f"grace likes {XSS} tea.", "category": "sticky"}
    )
    assert again.status_code == 303, "it says something else"
    assert (same.status_code, "fact 1 has the same content already; change that fact instead" in same.text) == (
        409,
        True,
    )
    assert "grace likes &lt;img" in same.text, "what was typed is still there"


@pytest.mark.parametrize(
    ("path", "data", "status", "sentence"),
    [
        (
            "facts",
            {"content": " ", "category": "sticky"},
            400,
            "content: the fact is empty; write what the agent is to remember",
        ),
        ("facts", {"content": "x" * 600}, 400, "the fact has 600 characters"),
        ("facts", {"content": "x", "category": "banana"}, 400, "category: expected"),
        ("facts", {"content": "x", "agent": "nobody"}, 404, "there is no agent 'nobody'"),
        ("facts/change", {"number": "9", "content": "x"}, 404, "ada has no fact 9"),
        ("facts/change", {"number": "1", "content": "x", "confidence": "2"}, 400, "confidence: must be at most 1"),
        ("facts/stick", {"number": "9"}, 404, "ada has no fact 9"),
        ("facts/forget", {"number": "9"}, 404, "ada has no fact 9"),
        ("states", {"key": "", "value": "x"}, 409, "a state needs a key"),
        ("states", {"key": "k", "value": "  "}, 400, "value: "),
        ("states/forget", {"key": "k"}, 404, "ada has no state with this key"),
    ],
)
async def test_what_cannot_be_is_said_on_the_page(
    rows: JobRows, http: httpx.AsyncClient, path: str, data: dict[str, str], status: int, sentence: str
) -> None:
    learn(rows, (FactCategory.STICKY, "Grace likes tea"))
    answer = await http.post(f"{PAGE}/{path}", data={"agent": "ada", **data})
    assert answer.status_code == status
    assert sentence in html.unescape(answer.text)
    assert len(known(rows)) == 1


async def test_a_fact_is_changed_made_sticky_and_forgotten(rows: JobRows, http: httpx.AsyncClient) -> None:
    learn(rows, (FactCategory.USER_PREFERENCE, "Grace likes tea"), (FactCategory.USER_PREFERENCE, "Alan reads Euclid"))
    await done(
        http, "facts/change", "changed", number="1", content="Grace loves tea", category="sticky", confidence="0.5"
    )
    await done(http, "facts/stick", "changed", number="2")
    assert known(rows) == {1: ("sticky", "Grace loves tea", 0.5), 2: ("sticky", "Alan reads Euclid", 0.8)}
    repeat = await http.post(
        f"{PAGE}/facts/change", data={"agent": "ada", "number": "2", "content": "Grace loves tea", "category": "sticky"}
    )
    assert (repeat.status_code, "fact 1 has the same content already" in repeat.text) == (409, True)
    assert '<details id="change-2" open>' in repeat.text
    await done(http, "facts/forget", "forgotten", number="1")
    assert list(known(rows)) == [2]
    with rows.store.view() as tx:
        assert [one.action for one in tx.system.audit.list_latest_entries(3)] == [
            "memory.forget",
            "memory.change",
            "memory.change",
        ]


async def test_a_filter_survives_a_change(rows: JobRows, http: httpx.AsyncClient) -> None:
    learn(rows, (FactCategory.USER_PREFERENCE, "Grace likes tea"))
    page = (await http.get(PAGE, params={"agent": "ada", "q": "tea"})).text
    assert 'action="/memory/facts/forget?q=tea"' in page
    led = await http.post(f"{PAGE}/facts/forget?q=tea", data={"agent": "ada", "number": "1"})
    assert led.headers["Location"] == f"{PAGE}?agent=ada&q=tea&done=forgotten"


async def test_values_are_kept_under_keys_and_forgotten(rows: JobRows, http: httpx.AsyncClient) -> None:
    page = await done(http, "states", "kept", key=" topic/1 ", value=XSS)
    assert "<code>topic/1</code>" in page
    assert "<img" not in (await http.get(PAGE)).text
    await done(http, "states", "kept", key="topic/1", value="other")
    await done(http, "states", "kept", key="topic/1", value="here", place="1/web/default/general//")
    with rows.store.view() as tx:
        assert [(one.value, one.place) for one in tx.memory.list_states_of_agent(1, 9)] == [
            ("other", ""),
            ("here", "1/web/default/general//"),
        ]
    await done(http, "states/forget", "forgotten", key="topic/1", place="1/web/default/general//")
    with rows.store.view() as tx:
        assert [one.value for one in tx.memory.list_states_of_agent(1, 9)] == ["other"]


async def test_everything_is_forgotten(rows: JobRows, http: httpx.AsyncClient) -> None:
    learn(rows, (FactCategory.STICKY, "Grace likes tea"))
    assert "All 1 facts" in (await http.get(PAGE)).text
    assert "were deleted" in await done(http, "clear", "cleared")
    assert known(rows) == {}


async def test_each_agent_has_its_own(rows: JobRows, http: httpx.AsyncClient) -> None:
    add_agent(rows, "bob")
    learn(rows, (FactCategory.STICKY, "Grace likes tea"))
    assert FACT.findall((await http.get(PAGE, params={"agent": "bob"})).text) == []
    assert (await http.post(f"{PAGE}/facts/forget", data={"agent": "bob", "number": "1"})).status_code == 404
