"""The grammar of tags, case by case (docs/decisions.md: tags)."""

import pytest

from maestro.domain.tags.grammar import Tag, TagName, parse_answer

FACT = Tag(TagName.MEMORY, "sticky", (), "likes tea", complete=True)
STATE = Tag(TagName.STATE, "last-topic", (), "x", complete=True)
TASK = Tag(TagName.DELEGATE, "coder", (), "do it", complete=True)


@pytest.mark.parametrize(
    ("answer", "visible", "tags"),
    [
        (
            "Hi [MEMORY:sticky] likes tea [/MEMORY] there [STATE:last-topic] x [/STATE] end",
            "Hi there end",
            [FACT, STATE],
        ),
        ("Hi [MEMORY:sticky] likes tea [/MEMORY]", "Hi", [FACT]),
        ("Hi\n[MEMORY:sticky]\nlikes tea\n[/MEMORY]\nthere", "Hi\nthere", [FACT]),
        ("Hi [MEMORY:sticky] likes tea", "Hi", [FACT]),
        ("Hi [MEMORY:sticky] likes tea\nthere", "Hi\nthere", [FACT]),
        ("Hi [memory:sticky] likes tea [/Memory] there", "Hi there", [FACT]),
        ("Hi [MEMORY:sticky] likes tea [STATE:last-topic] x\nthere", "Hi\nthere", [FACT, STATE]),
        ("Hi [MEMORY:sticky] likes tea [/STATE] there", "Hi there", [FACT]),
        ("[MEMORY:sticky]likes tea[/MEMORY]", "", [FACT]),
        ("[MEMORY: sticky] likes tea [/MEMORY: sticky]", "", [FACT]),
        ("Noted[MEMORY:sticky] likes tea [/MEMORY]. Bye", "Noted. Bye", [FACT]),
        ("Noted [MEMORY:sticky] likes tea [/MEMORY], bye", "Noted, bye", [FACT]),
        ("a[MEMORY:sticky] likes tea [/MEMORY]b", "a b", [FACT]),
        ("One\n\n[MEMORY:sticky] likes tea [/MEMORY]\n\nTwo", "One\n\nTwo", [FACT]),
        ("One\n  [MEMORY:sticky] likes tea [/MEMORY] two", "One\n  two", [FACT]),
        (
            "One:\n- [MEMORY:sticky] likes tea [/MEMORY]\n- [STATE:last-topic] x [/STATE]\nTwo",
            "One:\nTwo",
            [FACT, STATE],
        ),
        ("Hi\r\n[MEMORY:sticky] likes tea [/MEMORY]\r\nthere", "Hi\r\nthere", [FACT]),
        ("Asked. [DELEGATE:coder] do it [/DELEGATE]", "Asked.", [TASK]),
        ("[DELEGATE:coder]\ndo it\n[/DELEGATE]\nBye", "Bye", [TASK]),
    ],
)
def test_a_tag_is_read_and_taken_out(answer: str, visible: str, tags: list[Tag]) -> None:
    parsed = parse_answer(answer)
    assert parsed.visible == visible
    assert list(parsed.tags) == tags


@pytest.mark.parametrize(
    ("opening", "key", "options"),
    [
        ("[DELEGATE:coder wait]", "coder", ("wait",)),
        ("[DELEGATE: coder  wait  please ]", "coder", ("wait", "please")),
        ("[STATE:a.b-c_9]", "a.b-c_9", ()),
        ("[STATE:Größe]", "Größe", ()),
        ("[STATE:主题]", "主题", ()),
        ("[STATE:हिन्दी]", "हिन्दी", ()),
        ("[UPDATE_AGENT:coder]", "coder", ()),
        ("[DELEGATE:@coder wait]", "@coder", ("wait",)),
        ("[CREATE_AGENT]", "", ()),
        ("[create_cron ]", "", ()),
    ],
)
def test_a_key_is_as_it_was_written(opening: str, key: str, options: tuple[str, ...]) -> None:
    name = opening.strip("[ ]").partition(":")[0].upper()
    [tag] = parse_answer(f"{opening} x [/{name}]").tags
    assert tag == Tag(TagName(name), key, options, "x", complete=True)


@pytest.mark.parametrize(
    ("answer", "visible"),
    [
        ("a [STATE] x [/STATE] b", "a b"),
        ("a [STATE:] x [/STATE] b", "a b"),
        ("a [STATE:x/y] x [/STATE] b", "a b"),
        ("a [STATE:@x] x [/STATE] b", "a b"),
        ("a [DELEGATE:@] x [/DELEGATE] b", "a b"),
        ("a [STATE:last topic] x [/STATE] b", "a b"),
        ("a [DELEGATE coder] x [/DELEGATE] b", "a b"),
        ("a [CREATE_AGENT:coder] x [/CREATE_AGENT] b", "a b"),
        ("State: [State], ZIP: 123", "State:, ZIP: 123"),
        ("Memory: [Memory: 16 GB], disk: 1 TB", "Memory:, disk: 1 TB"),
        ("a [MEMORY:sticky", "a"),
        ("a [MEMORY:sticky likes tea\nb", "a likes tea\nb"),
        ("a [CREATE_AGENT", "a"),
    ],
)
def test_a_tag_without_its_key_is_taken_out_and_not_acted_on(answer: str, visible: str) -> None:
    parsed = parse_answer(answer)
    assert parsed.visible == visible
    assert [tag.complete for tag in parsed.tags] == [False]


@pytest.mark.parametrize(
    ("answer", "visible", "tags"),
    [
        ("a [DELEGATE:coder] do it\nb", "a", [("DELEGATE", "do it\nb", False)]),
        (
            "a [DELEGATE:coder] do it\n[STATE:k] v [/STATE] b",
            "a\nb",
            [("DELEGATE", "do it", False), ("STATE", "v", True)],
        ),
        (
            "[DELEGATE:a] one [DELEGATE:b] two [/DELEGATE] end",
            "end",
            [("DELEGATE", "one", False), ("DELEGATE", "two", True)],
        ),
        (
            "[CREATE_AGENT]\nslug: a\n[CREATE_CRON]\nagent: a\n[/CREATE_CRON]\n[/CREATE_AGENT]\nend",
            "end",
            [("CREATE_AGENT", "slug: a", False), ("CREATE_CRON", "agent: a", True)],
        ),
        (
            "[CREATE_AGENT]\nsystem_prompt: keep [STATE:x] y [/STATE] well\n[/CREATE_AGENT]\nend",
            "end",
            [("CREATE_AGENT", "system_prompt: keep [STATE:x] y [/STATE] well", True)],
        ),
        (
            "[CREATE_CRON]\n  agent: a\n  prompt: b\n    c\n[/CREATE_CRON]",
            "",
            [("CREATE_CRON", "agent: a\nprompt: b\n  c", True)],
        ),
        ("a [/DELEGATE] b [/memory] c", "a b c", []),
    ],
)
def test_an_open_block_ends_at_the_next_tag(answer: str, visible: str, tags: list[tuple[str, str, bool]]) -> None:
    parsed = parse_answer(answer)
    assert parsed.visible == visible
    assert [(tag.name, tag.body, tag.complete) for tag in parsed.tags] == tags


@pytest.mark.parametrize(
    "answer",
    [
        "Write `[STATE:k] v [/STATE]` to keep it.",
        "Write ``[STATE:k] ` v [/STATE]`` to keep it.",
        "Write `[STATE:k]\nv [/STATE]` to keep it.",
        "```\n[STATE:k] v [/STATE]\n```",
        "````text\n```\n[STATE:k] v [/STATE]\n````\nend",
        "~~~\n[STATE:k] v [/STATE]\n~~~~",
        "~~~\n[STATE:k] v [/STATE]\n```\nnever closed",
        "```\n> ```\n[STATE:k] v [/STATE]\n```",
        "1. So:\n   ```\n   [STATE:k] v [/STATE]\n   ```",
        "- ```\n  [STATE:k] v [/STATE]\n  ```",
        "> ```\n> [STATE:k] v [/STATE]\n> ```",
        "No [tag], [state your name], [stateful:x], [STATEMENT], [/], [ STATE:k].",
        "One\n\n\n\nTwo \n three",
    ],
)
def test_code_and_plain_text_stay_as_they_are(answer: str) -> None:
    assert parse_answer(f"  {answer}\n") == parse_answer(answer)
    assert parse_answer(answer).visible == answer
    assert parse_answer(answer).tags == ()


@pytest.mark.parametrize(
    ("answer", "visible"),
    [
        ("\\`[STATE:k] v [/STATE]` end", "\\` ` end"),
        ("` [STATE:k] v [/STATE] `` end", "` `` end"),
        ("` one\n\n[STATE:k] v [/STATE] ` end", "` one\n\n` end"),
        ("- ` one\n- [STATE:k] v [/STATE] ` end", "- ` one\n- ` end"),
        ("``` a ` b\n[STATE:k] v [/STATE]\nend", "``` a ` b\nend"),
        ("```\nx\n```\n[STATE:k] v [/STATE]\nend", "```\nx\n```\nend"),
        ("```\nx```\n```\n[STATE:k] v [/STATE]\nend", "```\nx```\n```\nend"),
        ("> ```\n> x\n[STATE:k] v [/STATE]\nend", "> ```\n> x\nend"),
        ("- ```\n  x\n\n[STATE:k] v [/STATE]\nend", "- ```\n  x\n\nend"),
        ("````\nx\n`````\n[STATE:k] v [/STATE]\nend", "````\nx\n`````\nend"),
        ("```\n\n\n\nx\n```\n\n\n\n[STATE:k] v [/STATE]\nend", "```\n\n\n\nx\n```\n\nend"),
    ],
)
def test_what_only_looks_like_code_hides_nothing(answer: str, visible: str) -> None:
    parsed = parse_answer(answer)
    assert parsed.visible == visible
    assert [(tag.key, tag.body) for tag in parsed.tags] == [("k", "v")]


@pytest.mark.parametrize(
    ("answer", "visible", "body"),
    [
        ("[DELEGATE:c]\n```\nx = 1\n```\n[/DELEGATE]\nend", "end", "```\nx = 1\n```"),
        ("[DELEGATE:c] close with `[/DELEGATE]` please [/DELEGATE] end", "end", "close with `[/DELEGATE]` please"),
        ("[DELEGATE:c]\n```\nx = 1\n[/DELEGATE]\nend", "end", "```\nx = 1"),
        ("[MEMORY:c] quotes with ` marks [/MEMORY] and ` end", "and ` end", "quotes with ` marks"),
        ("[MEMORY:c] tea\n```\n[MEMORY:d] x [/MEMORY]\n```", "```\n[MEMORY:d] x [/MEMORY]\n```", "tea"),
    ],
)
def test_code_in_a_tag_is_a_part_of_it_and_does_not_hide_its_end(answer: str, visible: str, body: str) -> None:
    parsed = parse_answer(answer)
    assert parsed.visible == visible
    assert [tag.body for tag in parsed.tags] == [body]


def test_what_becomes_a_tag_when_another_is_gone_is_not_shown_and_not_acted_on() -> None:
    parsed = parse_answer("a ` [MEMORY:x] b\n\nc [/MEMORY] d ` [STATE:k] v [/STATE] ` e")
    assert parsed.visible == "a ` d ` ` e"
    assert [tag.name for tag in parsed.tags] == [TagName.MEMORY]
    assert parse_answer("[[MEMORY:x] y [/MEMORY]STATE:k] v [/STATE]").visible == "[ STATE:k] v"


@pytest.mark.parametrize(
    ("answer", "visible"),
    [
        ("> a [MEMORY:sticky] b [/MEMORY] c\n\nd", "> a c\n\nd"),
        ("   > [DELEGATE:bob]\n> task\n> [/DELEGATE]\nd", "d"),
        ("> a [STATE:key] b", "> a"),
        (">[CREATE_AGENT]\n>slug: x\n>[/CREATE_AGENT]", ">"),
        ("You wrote:\n> [DELEGATE:bob] task\n\nI will not.", "You wrote:\n> task\n\nI will not."),
        ("> [STATE:key] b\nmine [/STATE]", "> b\nmine"),
        ("1. > a [STATE:key] b [/STATE]\n   > c\nd", "1. > a\n   > c\nd"),
        ("- You wrote:\n      > a [STATE:key] b [/STATE]\nd", "- You wrote:\n      > a\nd"),
    ],
)
def test_what_is_quoted_is_taken_out_and_is_no_tag_of_the_answer(answer: str, visible: str) -> None:
    found = parse_answer(answer)
    assert found.tags == ()
    assert "[" not in found.visible
    assert found.visible.strip("> \n") == visible.strip("> \n")


def test_what_is_not_quoted_acts_beside_what_is() -> None:
    found = parse_answer("> [STATE:a] b [/STATE]\n[STATE:c] d [/STATE]\n1 > 0 [STATE:e] f [/STATE]")
    assert [(tag.key, tag.body) for tag in found.tags] == [("c", "d"), ("e", "f")]
