"""Which skills a message brings in: points, order, tools, whole words."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maestro.domain.skills.skill import (
    MOST_SKILLS,
    SCORED_CHARS,
    Skill,
    SkillIndex,
    SkillRow,
    SkillScore,
    pattern_problem,
)
from maestro.domain.skills.views import try_message
from tests.support.job_rows import MORNING

NO_TOOLS: frozenset[str] = frozenset()


def skill(
    slug: str, *keywords: str, patterns: tuple[str, ...] = (), tools: tuple[str, ...] = (), body: str = "Do it well."
) -> Skill:
    return Skill(slug, slug.title(), body, keywords, patterns, tools)


def chosen(
    skills: list[Skill], message: str, tools: frozenset[str] = NO_TOOLS, allowed: frozenset[str] | None = None
) -> list[str]:
    return [skill.slug for skill in SkillIndex(skills).choose_skills(message, tools, allowed)]


# Points


@pytest.mark.parametrize(
    ("message", "points"),
    [
        ("nothing of the kind", 0),
        ("deploy", 1),
        ("deploy deploy deploy", 1),
        ("deploy the release", 2),
        ("please ship it", 2),
        ("ship it, ship it", 2),
        ("deploy the release and ship it", 4),
        ("ship it on a Friday", 4),
    ],
)
def test_a_keyword_gives_one_point_and_a_pattern_two(message: str, points: int) -> None:
    one = skill("deploying", "deploy", "release", patterns=(r"ship (it|them)", r"on an? \w+day"))
    assert sum(score.points for score in SkillIndex([one]).rank_skills(message)) == points


def test_the_three_with_most_points_are_chosen_and_equal_ones_by_slug() -> None:
    skills = [skill("d", "tea"), skill("b", "tea"), skill("c", "tea"), skill("a", "cup"), skill("z", "tea", "pot")]
    assert chosen(skills, "a pot of tea") == ["z", "b", "c"]
    assert chosen(list(reversed(skills)), "a pot of tea") == ["z", "b", "c"]


def test_a_skill_without_points_is_never_chosen() -> None:
    assert chosen([skill("a", "tea"), skill("b")], "coffee") == []
    assert chosen([skill("a", "tea")], "") == []


# Who may be given it


def test_a_skill_that_needs_a_tool_is_for_agents_that_have_it() -> None:
    skills = [skill("a", "tea", tools=("kettle", "cup")), skill("b", "tea", tools=("kettle",))]
    assert chosen(skills, "tea") == []
    assert chosen(skills, "tea", frozenset({"kettle"})) == ["b"]
    assert chosen(skills, "tea", frozenset({"kettles", "cups"})) == []
    assert chosen(skills, "tea", frozenset({"kettle", "cup", "spoon"})) == ["a", "b"]


def test_an_agent_that_lists_skills_gets_only_those() -> None:
    skills = [skill("a", "tea"), skill("b", "tea")]
    assert chosen(skills, "tea", allowed=frozenset({"b", "c"})) == ["b"]
    assert chosen(skills, "tea", allowed=frozenset()) == []


def test_one_that_may_not_be_given_takes_nobodys_place() -> None:
    skills = [skill(slug, "tea", "pot", tools=("kettle",)) for slug in "abc"] + [skill("z", "tea")]
    assert chosen(skills, "tea pot") == ["z"]


# Whole words


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("deploy", "Deploy!"),
        ("DEPLOY", "can you (deploy) it"),
        ("pull request", "a Pull\n  request"),
        ("c++", "I like C++."),
        ("c++", "c++"),
        ("ci/cd", "our CI/CD is slow"),
        (".net", "a .NET service"),
        ("node.js", "in Node.js, of course"),
        ("what's up", "so, what’s up?"),
        ("größe", "die GRÖSSE stimmt nicht"),
        ("страница", "эта СТРАНИЦА пуста"),
        ("हिन्दी", "मुझे हिन्दी आती है"),
        ("部署", "请帮我部署服务"),
        ("デプロイ", "本番にデプロイして"),
        ("café", "un cafe\u0301 noir"),
        ("deploy", "ｄｅｐｌｏｙ now"),
        ("r&d", "our R&D team"),
        ("@home", "run it @home"),
    ],
)
def test_a_keyword_is_found_as_a_whole_word(keyword: str, message: str) -> None:
    assert chosen([skill("a", keyword)], message) == ["a"]


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("deploy", "redeployment and deployed"),
        ("deploy", "deploy_all()"),
        ("art", "start"),
        ("c++", "c++11"),
        ("c++", "abc++"),
        (".net", "asp.net"),
        ("pull request", "pull requests"),
        ("pull request", "pullrequest"),
        ("हिन्द", "हिन्दी"),
        ("cafe", "café"),
        ("страниц", "страница"),
        ("7", "17"),
    ],
)
def test_a_part_of_a_word_is_not(keyword: str, message: str) -> None:
    assert chosen([skill("a", keyword)], message) == []


def test_a_keyword_that_is_part_of_a_word_first_is_found_further_on() -> None:
    assert chosen([skill("a", "art")], "a start, and art after all") == ["a"]


def test_keywords_and_messages_of_odd_characters_do_no_harm() -> None:
    odd = skill("a", " ", "\u200d", "++", patterns=("(",))
    for message in ("", " ", "\ud800 half", "\0", "+++", "\u200d", "👩‍💻"):
        chosen([odd, skill("b", "half")], message)
    assert chosen([odd, skill("b", "half")], "\ud800 half") == ["b"]


# Patterns


def test_a_pattern_takes_either_case_unless_it_says_otherwise() -> None:
    assert chosen([skill("a", patterns=("ship it",))], "SHIP IT") == ["a"]
    assert chosen([skill("a", patterns=("(?-i)ship it",))], "SHIP IT") == []


@pytest.mark.parametrize(
    ("patterns", "matching"),
    [
        (("(?-i)ship", "sail"), ("sail",)),
        (("sail", "(?-i)SHIP", "x"), ("sail", "(?-i)SHIP")),
        (("a|^SHIP", "IT$|b"), ("a|^SHIP",)),
        ((r"\Qq.", r"sail\b", r"z\E?sail"), (r"sail\b",)),
        (("(?P<w>ship)", "(?P<w>sail)"), ("(?P<w>ship)", "(?P<w>sail)")),
        ((*(f"{letter}.{{400}}" for letter in "abcdefghij"), "sail"), ("sail",)),
    ],
)
def test_patterns_of_one_skill_do_not_meddle_with_each_other(
    patterns: tuple[str, ...], matching: tuple[str, ...]
) -> None:
    [score] = SkillIndex([skill("a", patterns=patterns)]).rank_skills("SHIP to Sail away")
    assert score.patterns == matching


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*a){30}b", "([a-z]+)*!", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_is_slow(pattern: str) -> None:
    """Each of these takes longer than the universe has existed, where patterns are searched by trying all ways."""
    assert pattern_problem(pattern) is None
    assert chosen([skill("a", patterns=(pattern,)), skill("b", "zebra")], "a" * 60_000 + "! zebra") in (
        ["b"],
        ["a", "b"],
    )


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing )"),
        ("(?<=a)b", "lookaround and backreferences are not supported"),
        (r"(a)\1", "lookaround and backreferences are not supported"),
        ("a{5000}", "invalid repetition"),
        (".{900}", "too large"),
        ("x" * 501, "more than 500 characters"),
        (".*", "matches every message"),
        ("a?", "matches every message"),
        (" ", "empty"),
    ],
)
def test_a_pattern_that_cannot_be_used_says_why(pattern: str, reason: str) -> None:
    assert reason in (pattern_problem(pattern) or "")


# Long messages


def test_of_a_long_message_both_ends_count() -> None:
    skills = [skill("first", "alpha"), skill("last", "omega"), skill("middle", "delta")]
    filler = "lorem ipsum " * 13_000
    assert len(filler) > 2 * SCORED_CHARS
    assert chosen(skills, f"alpha {filler} delta {filler} omega") == ["first", "last"]
    assert chosen([skill("cut", "alphaomega")], "alpha" + " " * 2 * SCORED_CHARS + "omega") == []


# Why


def row(slug: str, keywords: str, *, enabled: bool = True, tools: str = "[]") -> SkillRow:
    return SkillRow(
        slug=slug,
        name=slug,
        body="b",
        source=slug,
        digest=slug,
        keywords=keywords,
        required_tools=tools,
        enabled=enabled,
        updated_at=MORNING,
    )


def test_a_trial_says_what_gave_points_and_why_a_skill_would_not_come() -> None:
    rows = [
        row("best", '["tea", "pot", "cup"]'),
        row("other", '["tea", "pot"]'),
        row("off", '["tea"]', enabled=False),
        row("foreign", '["tea"]'),
        row("tooled", '["tea"]', tools='["kettle"]'),
        row("third", '["tea"]'),
        row("unlucky", '["tea"]'),
        row("silent", '["coffee"]'),
    ]
    allowed = frozenset({"best", "other", "off", "tooled", "third", "unlucky"})
    found = try_message(rows, "a cup and a pot of tea", NO_TOOLS, allowed)
    assert [(score.slug, score.points, score.chosen, score.reason) for score in found.items] == [
        ("best", 3, True, ""),
        ("other", 2, True, ""),
        ("foreign", 1, False, "the skill is not among the agent's skills"),
        ("off", 1, False, "the skill is disabled"),
        ("third", 1, True, ""),
        ("tooled", 1, False, "the agent does not have kettle"),
        ("unlucky", 1, False, "other skills have more points"),
    ]
    assert found.items[0].keywords == ("tea", "pot", "cup")


def test_a_trial_without_an_agent_takes_every_tool_as_there() -> None:
    [score] = try_message([row("tooled", '["tea"]', tools='["kettle"]')], "tea", None, None).items
    assert score.chosen


# Many skills at once

KEYWORDS = (
    "tea",
    "tea pot",
    "pot",
    "c++",
    ".net",
    "++",
    "東京",
    "部署",
    "café",
    "CAFÉ",
    "7",
    "हिन्दी",
    "what's up",
    " ",
)
PATTERNS = (
    "ship (it|them)",
    r"no-\d+",
    "(?-i)SHIP",
    "^tea",
    "pot$",
    r"\Qq.",
    "tea",
    "(?P<w>cup)",
    "(?P<w>tea)",
    "(",
    "🙂",
    "x*y",
)
SAID = (*KEYWORDS, "teapot", "ship it", "SHIP", "no-7", "q.", "cup", "xxy", "pots", "17", "\n", "🙂", "cafe\u0301")


@st.composite
def skills(draw: st.DrawFn) -> list[Skill]:
    count = draw(st.integers(0, 12))
    return [
        skill(
            f"s-{number}",
            *draw(st.lists(st.sampled_from(KEYWORDS), max_size=4)),
            patterns=tuple(draw(st.lists(st.sampled_from(PATTERNS), max_size=4))),
            tools=tuple(draw(st.lists(st.sampled_from(("kettle", "cup")), max_size=1))),
        )
        for number in range(count)
    ]


@given(
    skills(),
    st.lists(st.sampled_from(SAID)),
    st.sampled_from(["", " "]),
    st.frozensets(st.sampled_from(("kettle", "cup"))),
    st.none() | st.frozensets(st.sampled_from([f"s-{number}" for number in range(12)])),
)
def test_skills_that_share_an_index_score_as_each_by_itself_would(
    library: list[Skill], said: list[str], between: str, tools: frozenset[str], allowed: frozenset[str] | None
) -> None:
    message = between.join(said)
    alone = [score for score in map(partial(score_each_trigger, message), library) if score.points]
    ranked = sorted(alone, key=lambda score: (-score.points, score.skill.slug))
    assert SkillIndex(library).rank_skills(message) == ranked
    fitting = [score.skill for score in ranked if SkillIndex([score.skill]).choose_skills(message, tools, allowed)]
    assert SkillIndex(library).choose_skills(message, tools, allowed) == tuple(fitting[:MOST_SKILLS])


def score_each_trigger(message: str, one: Skill) -> SkillScore:
    """Score a skill by one index for each keyword and each pattern."""
    keywords = tuple(word for word in one.keywords if SkillIndex([skill("k", word)]).rank_skills(message))
    patterns = tuple(text for text in one.patterns if SkillIndex([skill("p", patterns=(text,))]).rank_skills(message))
    return SkillScore(one, keywords, patterns)


def test_a_pattern_that_matches_is_no_keyword_of_the_same_text() -> None:
    library = [skill("a", "deploy"), skill("b", patterns=("deploy",)), skill("c", "deploy", patterns=("deploy",))]
    scores = SkillIndex(library).rank_skills("redeploy it")
    assert [(score.skill.slug, score.keywords, score.points) for score in scores] == [("b", (), 2), ("c", (), 2)]


def test_one_pattern_among_hundreds_is_found() -> None:
    many = [skill(f"s-{number}", f"topic-{number}", patterns=(f"no-{number}$",)) for number in range(300)]
    assert chosen(many, "topic-17 and no-299") == ["s-299", "s-17"]
