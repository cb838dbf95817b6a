"""Whom a text mentions (docs/decisions.md: routing)."""

import pytest

from maestro.domain.agents.routing import MOST_MARKS, RoutableAgent, find_mention, may_mention

NAMES = (
    RoutableAgent(1, "boss", "The Boss"),
    RoutableAgent(2, "coder", "C++ Coder"),
    RoutableAgent(3, "cpp-dev", "C++ Dev (beta)"),
    RoutableAgent(4, "cpp-old", "C++ Dev"),
    RoutableAgent(5, "writer", "Wanda"),
    RoutableAgent(6, "helper-jp", "助手"),
    RoutableAgent(7, "strasse", "Straße"),
    RoutableAgent(8, "hindi", "हिन्दी"),
    RoutableAgent(9, "fox", "🦊 Fox"),
    RoutableAgent(10, "odd", ".*"),
    RoutableAgent(11, "anna", "Анна"),
    RoutableAgent(12, "hi", "हि"),
    RoutableAgent(13, "cafe", "Café"),
)


@pytest.mark.parametrize(
    ("content", "slug"),
    [
        ("@coder fix it", "coder"),
        ("fix it, @CODER!", "coder"),
        ("(@coder)", "coder"),
        ("-@coder", "coder"),
        ("wait...@coder", "coder"),
        ("@coder's code", "coder"),
        ("thank you @coder.", "coder"),
        ("line\n@coder\nline", "coder"),
        ("**@coder**", "coder"),
        ("@C++ Coder fix it", "coder"),
        ("@c++ dev (beta), please", "cpp-dev"),
        ("@C++ Dev (beta)", "cpp-dev"),
        ("@C++ Dev is it", "cpp-old"),
        ("@cpp-dev", "cpp-dev"),
        ("@wanda, a poem", "writer"),
        ("@the boss", "boss"),
        ("@助手 帮忙", "helper-jp"),
        ("请@助手帮忙", "helper-jp"),
        ("@coder请帮忙", "coder"),
        ("＠Coder", "coder"),
        ("@STRASSE", "strasse"),
        ("@Straße", "strasse"),
        ("@हिन्दी", "hindi"),
        ("@हि", "hi"),
        ("@🦊 fox", "fox"),
        ("@.*", "odd"),
        ("@анна", "anna"),
        ("@АННА, привет", "anna"),
        ("@Cafe\u0301", "cafe"),
        ("@nobody, or @writer", "writer"),
        ("@coder and @writer", "coder"),
        ("@writer and @coder", "writer"),
    ],
)
def test_a_mention_is_a_whole_token_in_any_case_and_script(content: str, slug: str) -> None:
    found = find_mention(content, NAMES)
    assert [agent.slug for agent in NAMES if agent.id == found] == [slug]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "coder, fix it",
        "@",
        "@ coder",
        "@c",
        "@coders fix it",
        "@coder2",
        "@coder_two",
        "@coder-two",
        "@coder.example",
        "x@coder",
        "mail coder@coder.example",
        "ada+@coder",
        "ada.lovelace@coder",
        "@coder@server",
        "@@coder",
        "@C++ Coders",
        "@Wandas",
        "@हिन्",
        "@annа",  # the last letter is Cyrillic
        "@any",
    ],
)
def test_what_is_no_mention(content: str) -> None:
    assert find_mention(content, NAMES) is None


def test_a_slug_beats_a_name_and_then_the_first_agent() -> None:
    agents = (RoutableAgent(1, "a", "writer"), RoutableAgent(2, "b", "Ada"), RoutableAgent(3, "writer", "Ada"))
    assert find_mention("@writer", agents) == 3
    assert find_mention("@ada", agents) == 2


def test_an_agent_without_a_name_is_mentioned_by_its_slug_alone() -> None:
    agents = (RoutableAgent(1, "a", ""), RoutableAgent(2, "b", "  "))
    assert find_mention("@b", agents) == 2
    assert find_mention("@ hello", agents) is None


def test_a_text_full_of_marks_is_not_searched_to_its_end() -> None:
    assert find_mention("@ " * (MOST_MARKS - 1) + "@coder", NAMES) == 2
    assert find_mention("@ " * MOST_MARKS + "@coder", NAMES) is None


def test_where_nothing_is_marked_nobody_need_be_looked_up() -> None:
    assert not may_mention("hello, coder")
    assert may_mention("hello @coder")
    assert may_mention("hello ﹫coder")
