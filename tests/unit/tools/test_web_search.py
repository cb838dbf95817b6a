"""Looking things up: DuckDuckGo's instant answers, as they really come."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from maestro.tools.base import ToolCaller, ToolFailure
from maestro.tools.web import WebSearch
from tests.support.raw_server import RawServer, answer_of

CALLER = ToolCaller("job", 1, 1, Path())
FOUND = {
    "Heading": "Temporal",
    "Answer": "",
    "AbstractText": "Temporal is a  durable\nexecution platform.",
    "AbstractURL": "https://en.wikipedia.org/wiki/Temporal",
    "Infobox": {"content": [{"label": f"Fact {number}", "value": number} for number in range(9)], "meta": []},
    "RelatedTopics": [
        {"Text": "First topic", "FirstURL": "https://duckduckgo.com/1"},
        {"Name": "Group", "Topics": [{"Text": f"Grouped {n}", "FirstURL": f"https://d.com/{n}"} for n in range(9)]},
        {"Topics": []},
        "not a topic",
    ],
}


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer.running() as server:
        yield server


def search(server: RawServer) -> WebSearch:
    return WebSearch(f"http://127.0.0.1:{server.port}/")


async def found(server: RawServer, answer: object, query: str = "temporal & co") -> str:
    server.answers["/"] = answer_of(json.dumps(answer).encode(), "Content-Type: application/x-javascript")
    return await search(server).run({"query": query}, CALLER)


async def test_it_tells_answer_facts_and_topics_with_sources(server: RawServer) -> None:
    lines = (await found(server, FOUND)).splitlines()
    assert lines[0].startswith("Search results (untrusted")
    assert lines[1:3] == [
        "# Temporal",
        "Temporal is a durable execution platform. (https://en.wikipedia.org/wiki/Temporal)",
    ]
    assert lines[3:10] == [*(f"- Fact {number}: {number}" for number in range(6)), "Related:"]
    assert lines[10:] == [
        "- First topic (https://duckduckgo.com/1)",
        *(f"- Grouped {number} (https://d.com/{number})" for number in range(4)),
    ]
    assert "/?q=temporal+%26+co&format=json&" in server.asked[0]


async def test_a_short_answer_comes_first(server: RawServer) -> None:
    assert "42" in await found(server, {"Answer": "42", "RelatedTopics": [], "Infobox": ""})


@pytest.mark.parametrize("answer", [{}, {"Answer": {"from": "calculator"}, "Infobox": "", "RelatedTopics": None}, []])
async def test_nothing_found_is_said(server: RawServer, answer: object) -> None:
    assert (await found(server, answer, "qwertz")).startswith("Nothing was found for 'qwertz'")


async def test_what_goes_wrong_is_a_failure(server: RawServer) -> None:
    server.answers["/"] = answer_of(b"<html>blocked</html>")
    with pytest.raises(ToolFailure, match="not JSON"):
        await search(server).run({"query": "x"}, CALLER)
    server.answers["/"] = answer_of(b"{}", status="429 Too Many Requests")
    with pytest.raises(ToolFailure, match="error 429"):
        await search(server).run({"query": "x"}, CALLER)


async def test_a_service_that_is_away_is_a_failure() -> None:
    async with RawServer.running() as server:
        pass
    with pytest.raises(ToolFailure, match="cannot be reached"):
        await search(server).run({"query": "x"}, CALLER)
