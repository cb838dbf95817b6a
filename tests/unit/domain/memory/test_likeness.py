"""Which facts say the same: the table by which the rule and its thresholds were chosen.

See docs/decisions.md: duplicate facts.
"""

import pytest

from maestro.domain.memory.likeness import key_lengths, likeness_key, same_fact, similar_facts

SAME = [
    ("User likes tea.", "the user likes tea"),
    ("User likes tea", "User likes tea!"),
    ("USER LIKES TEA", "user likes tea"),
    ("Tea, please.", "tea,  PLEASE"),
    ("Grace lives in Paris", "Grace lives in  Paris."),
    ("Grace's cat is called Ada", "Grace’s cat is called Ada"),
    ("likes tea, coffee and milk", "likes milk, tea and coffee"),
    ("Likes tea and coffee", "likes coffee & tea"),
    ("At work, Grace drinks tea", "Grace drinks tea at work."),
    ("Likes tea; dislikes coffee", "Dislikes coffee, likes tea"),
    ("The project uses an SQLite database", "the project uses SQLite database"),
    ("User enjoys functional programming", "User enjoys functional programing"),
    ("prefers documentation in Markdown", "Prefers documentaton in markdown"),
    ("The meeting is on 2026-11-21", "the meeting is on 2026-11-21."),
    ("“Quoted” words (in brackets)", "quoted words in brackets"),
    ("Writes C++ and C#", "writes C# and C++"),
    ("Ｕｓｅｒ\u3000ｌｉｋｅｓ\u3000ｔｅａ", "user likes tea"),
    ("Любит чай.", "любит чай"),
    ("Любит чай и кофе", "любит кофе и чай"),
    ("グレースは東京に住んでいます。", "グレースは東京に住んでいます"),
    ("喜欢茶，咖啡", "喜欢咖啡、茶"),
    ("用户喜欢喝茶。", "用户喜欢喝茶！"),
    ("Der Kunde mag Tee und Kaffee", "der Kunde mag Kaffee und Tee"),
    ("사용자는 차를 좋아합니다.", "사용자는 차를 좋아합니다"),
    ("يحب الشاي", "يحب الشاي."),
    ("ชอบชา", "ชอบชา!"),
    ("café at noon", "café at noon"),
]

DIFFERENT = [
    ("likes cats", "likes bats"),
    ("User likes tea", "User does not like tea"),
    ("User likes tea", "User dislikes tea"),
    ("The user is available on Mondays", "The user is unavailable on Mondays"),
    ("Sofas are comfortable", "Sofas are uncomfortable"),
    ("Can eat peanuts", "Can't eat peanuts"),
    ("Is never late", "Is ever late"),
    ("has 2 children", "has 3 children"),
    ("phone number is 12345678", "phone number is 1234567"),
    ("born on 2026-11-21", "born on 2026-12-21"),
    ("meets on 2026-03-04", "meets on 2026-04-03"),
    ("pays 1.5 euros", "pays 15 euros"),
    ("pays 1.5 euros", "pays 5.1 euros"),
    ("it is -5 degrees", "it is 5 degrees"),
    ("pays $5", "pays €5"),
    ("gets 5% off", "gets 5 off"),
    ("the place is 52.1, 4.3", "the place is 4.3, 52.1"),
    ("Grace lives in Paris", "Grace lives in Berlin"),
    ("Grace's sister is Anna", "Grace's sister is Anne"),
    ("Johannson likes tea", "Johanson likes tea"),
    ("Anna manages Bob", "Bob manages Anna"),
    ("prefers tea over coffee", "prefers coffee over tea"),
    ("likes tea, not coffee", "likes coffee, not tea"),
    ("prefers tea over coffee and milk", "prefers milk over coffee and tea"),
    ("likes tea", "likes green tea"),
    ("likes tea or coffee", "likes tea and coffee"),
    ("takes vitamin A", "takes vitamin C"),
    ("writes C", "writes C++"),
    ("writes C#", "writes C"),
    ("Grace is the interviewee", "Grace is the interviewer"),
    ("lives in the country", "lives in the county"),
    ("works on Tuesday", "works on Thursday"),
    ("feels 😀 today", "feels 😢 today"),
    ("любит чай", "не любит чай"),
    ("любит кошек", "любит мошек"),
    ("живёт в Москве", "живёт в Минске"),
    ("喜欢茶", "不喜欢茶"),
    ("住在东京", "住在北京"),
    ("猫が好きです", "犬が好きです"),
    ("お茶が好きです", "お茶が好きではありません"),
    ("会議は3月4日です", "会議は4月3日です"),
    ("ชอบชา", "ไม่ชอบชา"),
    ("يحب الشاي", "لا يحب الشاي"),
    ("차를 좋아합니다", "차를 싫어합니다"),
    ("mag Tee", "mag keinen Tee"),
]


def is_repeat(fact: str, known: str) -> bool:
    """Decide as the store does: find what is near, then compare."""
    least, most = key_lengths([fact])
    return (
        least <= len(likeness_key(known)) <= most
        and bool(similar_facts(fact, {7: likeness_key(known)}))
        and same_fact(fact, known)
    )


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_says_the_same_is_kept_once(one: str, other: str) -> None:
    assert is_repeat(one, other)
    assert is_repeat(other, one)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_may_mean_something_else_is_kept(one: str, other: str) -> None:
    assert not is_repeat(one, other)
    assert not is_repeat(other, one)


def test_what_is_near_is_found_among_many_the_most_similar_first() -> None:
    keys = {number: likeness_key(f"likes number {number} of the things there are") for number in range(5_000)}
    keys |= {
        6_000: likeness_key("prefers documentation in Markdown, mostly"),
        6_001: likeness_key("prefers documentation in Markdown"),
    }
    assert list(similar_facts("The documentation in Markdown prefers", keys))[:1] == [6_001]


def test_what_is_near_is_not_left_out_for_its_length() -> None:
    for size in (*range(1, 60), 499, 500):
        least, most = key_lengths(["x" * size])
        near = [other for other in range(1, 700) if similar_facts("x" * size, {7: "x" * other})]
        assert least <= near[0]
        assert near[-1] <= most <= near[-1] + 1


def test_of_several_the_shortest_and_the_longest_count() -> None:
    assert key_lengths(["x" * 20, "x" * 100, "x" * 50]) == (key_lengths(["x" * 20])[0], key_lengths(["x" * 100])[1])


def test_anything_can_be_compared() -> None:
    texts = ["", "!?", "\x00", "and and", "the", "'", "\u0e33", "\ud83d\ude00", "a" * 500, ", " * 250, "1 " * 250]
    for one in texts:
        for other in texts:
            assert is_repeat(one, other) is is_repeat(other, one)
        assert same_fact(one, one)
