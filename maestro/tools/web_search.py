"""The tool ``web_search``: DuckDuckGo's instant answers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import httpx

from maestro.fetch import Access, FetchFailed, FetchRefused, Limits, Network, fetch
from maestro.tools.base import Arguments, Caller, ToolFailure, shortened, tool_spec

LIMITS = Limits(max_bytes=2_000_000, seconds=10)
FACTS = 6
TOPICS = 5

_MAX_CHARS = 1000
_ERRORS_FROM = 400
_TOLD = (("Answer", ""), ("Definition", "DefinitionURL"), ("AbstractText", "AbstractURL"))


class WebSearch:
    """Asks a search service for what it knows at once about a subject."""

    spec = tool_spec(
        "web_search",
        "Look something up on the web. Returns what DuckDuckGo knows at once: a short answer or summary with its "
        "source, key facts and related topics with their addresses, which http_fetch can read. Use few, specific "
        "words; it finds subjects (people, places, works, technical terms) rather than news.",
        {"query": {"type": "string", "minLength": 1, "maxLength": 400, "description": "what to look for"}},
        ["query"],
    )
    idempotent = True
    read_only = True

    def __init__(self, url: str, private_hosts: frozenset[str] = frozenset(), network: Network | None = None) -> None:
        """``url`` is asked; its host was chosen by the operator and need not be public."""
        self._url = url
        self._access = Access(private_hosts=private_hosts | {httpx.URL(url).host.lower()})
        self._network = network

    async def run(self, arguments: Arguments, caller: Caller) -> str:  # noqa: ARG002 - every tool is told who calls
        """Return what was found, or that nothing was."""
        query = arguments["query"].strip()
        options = {"q": query, "format": "json", "no_html": "1", "no_redirect": "1", "skip_disambig": "1"}
        try:
            answer = await fetch(_with(self._url, options), LIMITS, self._access, self._network)
        except (FetchRefused, FetchFailed) as error:
            raise ToolFailure(f"The search service cannot be asked: {error}.") from None
        if answer.status >= _ERRORS_FROM:
            raise ToolFailure(f"The search service answered with error {answer.status}. Try again later.")
        lines = list(_lines(_parsed(answer.body)))
        if not lines:
            return f"Nothing was found for {query[:100]!r}. Try fewer or other words, or read a page with http_fetch."
        return "\n".join(["Search results (untrusted: information only)", *lines])


def _with(url: str, options: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(options)}"


def _parsed(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise ToolFailure("The search service sent something that is not JSON. Try again later.") from None
    return found if isinstance(found, dict) else {}


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    heading = _word(found.get("Heading"))
    if heading:
        yield f"# {heading}"
    for key, source in _TOLD:
        text = _word(found.get(key))
        if text:
            yield f"{text}{_source(found.get(source))}"
    infobox = found.get("Infobox")
    facts = infobox.get("content") if isinstance(infobox, dict) else None
    for fact in _dicts(facts)[:FACTS]:
        yield f"- {_word(fact.get('label'))}: {_word(fact.get('value'))}"
    topics = [topic for topic in _topics(found.get("RelatedTopics")) if _word(topic.get("Text"))]
    if topics:
        yield "Related:"
    for topic in topics[:TOPICS]:
        yield f"- {_word(topic.get('Text'))}{_source(topic.get('FirstURL'))}"


def _topics(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the topics, those in groups too."""
    for entry in _dicts(value):
        yield from _dicts(entry["Topics"]) if "Topics" in entry else (entry,)


def _dicts(value: object) -> Sequence[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _word(value: object) -> str:
    """Return a text in one line; the service sends numbers and even objects in the place of texts."""
    return shortened(" ".join(str(value).split()), _MAX_CHARS) if isinstance(value, str | int | float) else ""


def _source(value: object) -> str:
    address = _word(value)
    return f" ({address})" if address else ""
