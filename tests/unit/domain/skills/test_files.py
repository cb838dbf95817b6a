"""A skill in its file: what is read, and a sentence for everything that is wrong."""

import pytest

from maestro.domain.skills.files import MAX_BYTES, InvalidSkill, SkillFile, SkillSource, choose_files, read_skill

WHOLE = """---
slug: tea
name: "Making tea"
description: How to make tea.
category: kitchen
version: 1.10
author: Grace
triggers:
  keywords: [tea, no, 404, "c++"]
  patterns:
    - 'a (cup|pot) of \\w+'
required_tools: [kettle]
---

# Tea

---
Boil water.
"""


def read(front: str, body: str = "Boil water.") -> SkillFile:
    return read_skill(f"---\nslug: tea\n{front}\n---\n{body}\n".encode())


def refused(data: bytes | str) -> str:
    with pytest.raises(InvalidSkill) as caught:
        read_skill(data if isinstance(data, bytes) else data.encode())
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What is read


def test_everything_is_read_as_it_stands() -> None:
    skill = read_skill(WHOLE.encode())
    assert (skill.slug, skill.name, skill.description) == ("tea", "Making tea", "How to make tea.")
    assert (skill.category, skill.version, skill.author) == ("kitchen", "1.10", "Grace")
    assert skill.keywords == ("tea", "no", "404", "c++")
    assert skill.patterns == (r"a (cup|pot) of \w+",)
    assert skill.required_tools == ("kettle",)
    assert skill.body == "# Tea\n\n---\nBoil water."
    assert skill.problems == ()


@pytest.mark.parametrize(
    "triggers",
    [
        "triggers:\n  keywords: [tea, pot]\n  patterns: [cup+]",
        "triggers: {keywords: [tea, pot], patterns: [cup+]}",
        "triggers:\n  - keywords: [tea, pot]\n  - patterns: [cup+]",
        "triggers:\n  - keyword: tea\n  - keyword: pot\n  - pattern: cup+",
        "triggers:\n- keyword: tea\n- patterns:\n  - cup+\n- keywords:\n  - pot",
    ],
)
def test_triggers_are_read_in_every_form(triggers: str) -> None:
    skill = read(triggers)
    assert (skill.keywords, skill.patterns, skill.problems) == (("tea", "pot"), ("cup+",), ())


def test_line_ends_and_a_byte_order_mark_of_other_systems_are_no_matter() -> None:
    skill = read_skill(("\ufeff" + WHOLE.replace("\n", "\r\n")).encode())
    assert (skill.slug, skill.body) == ("tea", "# Tea\n\n---\nBoil water.")


def test_what_is_left_out_is_empty_and_the_name_is_the_slug() -> None:
    skill = read("triggers:\n  keywords: [tea]\n  patterns:\nrequired_tools:")
    assert (skill.name, skill.version, skill.patterns, skill.required_tools) == ("tea", "", (), ())


def test_a_keyword_said_twice_counts_once() -> None:
    assert read("triggers: {keywords: [Tea, tea, TEA, pot]}").keywords == ("Tea", "pot")


def test_the_digest_changes_with_every_byte() -> None:
    assert read("triggers: {keywords: [tea]}").digest != read("triggers: {keywords: [tea]} ").digest


# What its author should mend


def test_a_pattern_that_cannot_be_used_is_left_out_and_the_keywords_work() -> None:
    skill = read("triggers: {keywords: [tea], patterns: ['(', 'cup+', '(?=x)']}")
    assert (skill.keywords, skill.patterns) == (("tea",), ("cup+",))
    assert [problem.split(":")[0] for problem in skill.problems] == [
        "the pattern '(' is left out",
        "the pattern '(?=x)' is left out",
    ]


def test_an_unknown_key_is_told() -> None:
    [unknown, silent] = read("trigger_keywords: [tea]").problems
    assert "'trigger_keywords' is not known" in unknown
    assert silent == "no message can trigger the skill; add keywords or patterns to its triggers"


# What cannot be used


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("# Tea", "no front matter"),
        ("", "no front matter"),
        ("---\nslug: tea\n", "no front matter"),
        ("---\n---\nBoil", "no keys"),
        ("---\n- tea\n---\nBoil", "no keys"),
        ("---\nname: Tea\n---\nBoil", "needs a slug"),
        ("---\nslug: Making Tea\n---\nBoil", "needs a slug"),
        ("---\nslug: ../../etc/passwd\n---\nBoil", "needs a slug"),
        ("---\nslug: tea\n---\n\n", "has no instructions for the model"),
        ("---\nslug: tea\nname: [a]\n---\nBoil", "name is a list or a mapping"),
        ("---\nslug: tea\nauthor: " + "x" * 201 + "\n---\nBoil", "author has more than 200 characters"),
        ('---\nslug: tea\nname: "\\uD800"\n---\nBoil', "not valid Unicode"),
        ('---\nslug: tea\ntriggers: {keywords: ["a\\x07"]}\n---\nBoil', "control character"),
        ("---\nslug: tea\ntriggers: tea\n---\nBoil", "triggers is not valid"),
        ("---\nslug: tea\ntriggers: [tea]\n---\nBoil", "triggers is not valid"),
        ("---\nslug: tea\ntriggers: {words: [tea]}\n---\nBoil", "triggers is not valid"),
        ("---\nslug: tea\ntriggers: {keywords: tea}\n---\nBoil", "triggers.keywords is not a list"),
        ("---\nslug: tea\ntriggers: {keywords: [[tea]]}\n---\nBoil", "triggers.keywords is not a list"),
        (
            f"---\nslug: tea\ntriggers: {{keywords: [{', '.join(map(str, range(201)))}]}}\n---\nB",
            "more than 200 entries",
        ),
        (f"---\nslug: tea\ntriggers: {{keywords: [{'x' * 81}]}}\n---\nBoil", "more than 80 characters"),
        (f"---\nslug: tea\ntriggers: {{patterns: [{', '.join(map(str, range(51)))}]}}\n---\nB", "more than 50 entries"),
        ("---\nslug: tea\nrequired_tools: [a b]\n---\nBoil", "no name of a tool"),
        ("---\nslug: tea\nslug: coffee\n---\nBoil", "'slug' occurs twice"),
        ("---\nslug: [tea\n---\nBoil", "not valid YAML in line"),
        ("---\nslug: tea\n\tname: x\n---\nBoil", "not valid YAML in line 3"),
        ("---\nslug: tea\n? [a]\n: b\n---\nBoil", "not valid YAML"),
        ("---\nslug: tea\nname: !!python/object/apply:os.system [ls]\n---\nBoil", "not valid YAML in line 3"),
        ("---\nslug: tea\nname: !!int nonsense\n---\nBoil", "not valid YAML in line 3"),
        ("---\nslug: tea\na: &a [x, x]\nb: *a\n---\nBoil", "aliases (*name) are not supported"),
        ("---\nslug: tea\na: " + "[" * 900 + "\n---\nBoil", "nested too deeply"),
        ("---\nslug: tea\na: " + "x" * 17_000 + "\n---\nBoil", "front matter has more than 16384 characters"),
        ("---\nslug: tea\n---\na\0b", "zero byte"),
        (b"---\nslug: \xff\n---\nBoil", "not UTF-8 text (byte 11)"),
        (b"x" * (MAX_BYTES + 1), "larger than 256 kB"),
    ],
)
def test_a_file_that_is_no_skill_says_why(data: bytes | str, reason: str) -> None:
    assert reason in refused(data)


# Several files


def found(source: str, slug: str | None, *, shipped: bool = False) -> SkillSource:
    """A file with a skill of this slug, or a broken one."""
    text = f"---\nslug: {slug}\ntriggers: {{keywords: [tea]}}\n---\n{source}" if slug else "broken"
    return SkillSource.parse_file(source, text.encode(), shipped=shipped)


def test_an_own_skill_replaces_a_shipped_one() -> None:
    library = choose_files([found("/m/tea.md", "tea", shipped=True), found("/z/tea.md", "tea")], {})
    assert {slug: file.source for slug, file in library.chosen.items()} == {"tea": "/z/tea.md"}
    assert library.problems == ()


def test_of_two_own_skills_with_one_slug_the_first_by_path_stays() -> None:
    library = choose_files([found("/own/b.md", "tea"), found("/own/a.md", "tea")], {})
    assert library.chosen["tea"].source == "/own/a.md"
    assert library.problems == (("/own/b.md", "the file /own/a.md already has the slug tea; choose another"),)


def test_a_broken_file_keeps_what_it_said_before() -> None:
    known = {"tea": "/own/a.md", "gone": "/own/gone.md"}
    library = choose_files([found("/own/a.md", None), found("/m/tea.md", "tea", shipped=True)], known)
    assert library.retained == {"tea"}
    assert not library.chosen
    assert [source for source, _ in library.problems] == ["/own/a.md"]


def test_a_broken_file_does_not_keep_a_slug_that_another_file_has_now() -> None:
    library = choose_files([found("/own/a.md", None), found("/own/b.md", "tea")], {"tea": "/own/a.md"})
    assert (library.retained, library.chosen["tea"].source) == (frozenset(), "/own/b.md")
