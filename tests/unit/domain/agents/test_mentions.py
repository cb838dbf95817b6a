"""Whom a text mentions (docs/decisions.md: routing)."""

import pytest

from maestro.domain.agents.routing import MOST_MARKS, Candidate, marked, mentioned

NAMES = (
    Candidate(1, "boss", "The Boss"),
    Candidate(2, "coder", "C++ Coder"),
    Candidate(3, "cpp-dev", "C++ Dev (beta)"),
    Candidate(4, "cpp-old", "C++ Dev"),
    Candidate(5, "writer", "Wanda"),
    Candidate(6, "helper-jp", "助手"),
    Candidate(7, "strasse", "Straße"),
    Candidate(8, "hindi", "हिन्दी"),
    Candidate(9, "fox", "🦊 Fox"),
    Candidate(10, "odd", ".*"),
    Candidate(11, "anna", "Анна"),
    Candidate(12, "hi", "हि"),
    Candidate(13, "cafe", "Café"),
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
    found = mentioned(content, NAMES)
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
    assert mentioned(content, NAMES) is None


def test_a_slug_beats_a_name_and_then_the_first_agent() -> None:
    agents = (Candidate(1, "a", "writer"), Candidate(2, "b", "Ada"), Candidate(3, "writer", "Ada"))
    assert mentioned("@writer", agents) == 3
    assert mentioned("@ada", agents) == 2


def test_an_agent_without_a_name_is_mentioned_by_its_slug_alone() -> None:
    agents = (Candidate(1, "a", ""), Candidate(2, "b", "  "))
    assert mentioned("@b", agents) == 2
    assert mentioned("@ hello", agents) is None


def test_a_text_full_of_marks_is_not_searched_to_its_end() -> None:
    assert mentioned("@ " * (MOST_MARKS - 1) + "@coder", NAMES) == 2
    assert mentioned("@ " * MOST_MARKS + "@coder", NAMES) is None


def test_where_nothing_is_marked_nobody_need_be_looked_up() -> None:
    assert not marked("hello, coder")
    assert marked("hello @coder")
    assert marked("hello ﹫coder")
