"""What counts as an answer, and whose (docs/decisions.md: questions)."""

from datetime import UTC, datetime, timedelta

import pytest

from maestro.domain.errors import Conflict, InvalidMessage
from maestro.domain.messages import Button
from maestro.domain.people.people import PersonId
from maestro.domain.questions.question import (
    AnswerRefusal,
    Question,
    QuestionAnswer,
    QuestionKind,
    QuestionStatus,
    Speaker,
    answer_named_question,
    answer_other_lane,
    answer_own_lane,
    choices_json,
    may_answer,
    operator_answer,
    parse_choice,
    parse_reply,
)

NOW = datetime(2026, 11, 20, tzinfo=UTC)
GRACE = Speaker(PersonId("web", "grace"), is_owner=False)
ALAN = Speaker(PersonId("web", "alan"), is_owner=False)
BOSS = Speaker(PersonId("web", "boss"), is_owner=True)
SLACKER = Speaker(PersonId("slack", "alan"), is_owner=False)


def asking(number: int, status: QuestionStatus = QuestionStatus.OPEN, asked_of: str = "grace") -> Question:
    return Question(
        id=number,
        job_id="message-1",
        number=1,
        place=number,
        kind=QuestionKind.QUESTION,
        status=status,
        text="Which colour?",
        lane="web/default/general",
        asked_of=asked_of,
        asked_at=NOW,
        expires_at=NOW + timedelta(hours=1),
    )


def deciding(number: int, status: QuestionStatus = QuestionStatus.OPEN, approvers: str = "web:alan") -> Question:
    question = asking(number, status)
    question.kind, question.approvers = QuestionKind.APPROVAL, approvers
    return question


def outcome(meant: QuestionAnswer | AnswerRefusal | None) -> str:
    """Say shortly what was made of a message: ``#1 ...``, ``refused``, ``told`` (that it is none) or ``message``."""
    if isinstance(meant, AnswerRefusal):
        return "refused" if meant.withheld is not None else "told"
    if meant is None:
        return "message"
    verdict = "" if meant.approves is None else " approved" if meant.approves else " denied"
    return f"#{meant.question.id} {meant.words!r}{verdict}"


# Reading


@pytest.mark.parametrize(
    ("content", "number", "words", "approves"),
    [
        ("yes", None, "yes", True),
        (" Y ", None, "Y", True),
        ("OK", None, "OK", True),
        ("approve", None, "approve", True),
        ("Yes!", None, "Yes!", True),
        ("no", None, "no", False),
        ("N.", None, "N.", False),
        ("Deny", None, "Deny", False),
        ("yes #7", 7, "yes", True),
        ("#7 yes", 7, "yes", True),
        ("#7: no", 7, "no", False),
        ("#7", 7, "", None),
        ("#7 dark blue, please", 7, "dark blue, please", None),
        ("#7\nblue", 7, "blue", None),
        ("yes please", None, "yes please", None),
        ("yes, look at #7", None, "yes, look at #7", None),
        ("see #7", None, "see #7", None),
        ("#7th place", None, "#7th place", None),
        ("# 7 yes", None, "# 7 yes", None),
        ("#12345678901 yes", None, "#12345678901 yes", None),
        ("yes #7 #8", None, "yes #7 #8", None),
        ("yesterday", None, "yesterday", None),
        ("okay", None, "okay", None),
        ("", None, "", None),
    ],
)
def test_a_message_is_read_as_a_number_words_and_a_yes_or_no(
    content: str, number: int | None, words: str, approves: bool | None
) -> None:
    what = parse_reply(content)
    assert (what.number, what.words, what.approves) == (number, words, approves)


# Whose answer counts


@pytest.mark.parametrize(
    ("question", "speaker", "allowed"),
    [
        (asking(1), GRACE, True),
        (asking(1), BOSS, True),
        (asking(1), ALAN, False),
        (deciding(1), BOSS, True),
        (deciding(1), ALAN, True),
        (deciding(1), GRACE, False),
        (deciding(1), SLACKER, False),
        (deciding(1, approvers="slack:bob web:alan"), ALAN, True),
        (deciding(1, approvers="web:alanis"), ALAN, False),
        (deciding(1, approvers=""), ALAN, False),
    ],
)
def test_who_was_asked_or_listed_may_answer_and_owners_always(
    question: Question, speaker: Speaker, allowed: bool
) -> None:
    assert may_answer(question, speaker) is allowed


# A message that points to no question


@pytest.mark.parametrize(
    ("waiting", "speaker", "content", "expected"),
    [
        # Words go to the oldest question that was put to this very person.
        ([], GRACE, "blue", "message"),
        ([], GRACE, "yes", "message"),
        ([asking(1)], GRACE, "blue", "#1 'blue'"),
        ([asking(1)], GRACE, "yes", "#1 'yes'"),
        ([asking(1), asking(2)], GRACE, "blue", "#1 'blue'"),
        ([asking(1, asked_of="alan"), asking(2)], GRACE, "blue", "#2 'blue'"),
        ([asking(1)], ALAN, "blue", "message"),
        ([asking(1)], BOSS, "blue", "message"),
        ([asking(1)], GRACE, "#99 is what I mean", "#1 '#99 is what I mean'"),
        # An approval takes a yes or no and nothing else.
        ([deciding(1)], ALAN, "yes", "#1 'yes' approved"),
        ([deciding(1)], BOSS, "No", "#1 'No' denied"),
        ([deciding(1)], ALAN, "yes please", "message"),
        ([deciding(1)], GRACE, "why?", "message"),
        ([deciding(1)], GRACE, "yes", "refused"),
        ([deciding(1)], GRACE, "no", "refused"),
        ([deciding(1)], ALAN, "yes #99", "message"),
        # With several, the number is needed.
        ([deciding(1), deciding(2)], ALAN, "yes", "told"),
        ([deciding(1), deciding(2, approvers="")], ALAN, "yes", "#1 'yes' approved"),
        ([deciding(1), deciding(2)], GRACE, "yes", "refused"),
        ([deciding(1), asking(2, asked_of="alan")], ALAN, "yes", "told"),
        ([deciding(1), asking(2, asked_of="alan")], ALAN, "blue", "#2 'blue'"),
        ([deciding(1), asking(2)], GRACE, "yes", "#2 'yes'"),
        ([asking(1), deciding(2)], BOSS, "yes", "#2 'yes' approved"),
    ],
)
def test_a_message_without_a_number(waiting: list[Question], speaker: Speaker, content: str, expected: str) -> None:
    assert outcome(answer_own_lane(parse_reply(content), speaker, waiting)) == expected


def test_who_does_not_say_which_is_told_the_numbers() -> None:
    meant = answer_own_lane(parse_reply("yes"), ALAN, [deciding(12), deciding(7)])
    assert isinstance(meant, AnswerRefusal)
    assert meant.reply == (
        "Several questions wait for an answer here: #7, #12. Say which one you mean, such as: yes #7"
    )


# A message that names a question, or replies to it


@pytest.mark.parametrize(
    ("pointed", "speaker", "content", "expected"),
    [
        (asking(7), GRACE, "#7 blue", "#7 'blue'"),
        (asking(7), GRACE, "yes #7", "#7 'yes'"),
        (asking(7), BOSS, "#7 blue", "#7 'blue'"),
        (asking(7), ALAN, "#7 blue", "message"),
        (asking(7), GRACE, "#7", "message"),
        (deciding(7), ALAN, "yes #7", "#7 'yes' approved"),
        (deciding(7), BOSS, "#7 deny", "#7 'deny' denied"),
        (deciding(7), GRACE, "yes #7", "refused"),
        (deciding(7), ALAN, "#7 why?", "message"),
        # A reply to the message that put it, without a number.
        (deciding(7), ALAN, "ok", "#7 'ok' approved"),
        (asking(7), GRACE, "blue", "#7 'blue'"),
    ],
)
def test_a_message_that_points_to_a_question(pointed: Question, speaker: Speaker, content: str, expected: str) -> None:
    assert outcome(answer_named_question(parse_reply(content), speaker, pointed, NOW)) == expected


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (QuestionStatus.ANSWERED, "#7 was answered already."),
        (QuestionStatus.DENIED, "#7 was answered already."),
        (QuestionStatus.EXPIRED, "#7 has expired."),
        (QuestionStatus.CANCELLED, "#7 was cancelled."),
    ],
)
def test_a_late_answer_is_told_so_and_how_to_say_it_to_the_agent(status: QuestionStatus, why: str) -> None:
    for pointed, speaker, content in ((asking(7, status), GRACE, "#7 blue"), (deciding(7, status), ALAN, "yes #7")):
        meant = answer_named_question(parse_reply(content), speaker, pointed, NOW)
        assert isinstance(meant, AnswerRefusal)
        assert meant.reply == f"{why} To say this to the agent, send it without the number."
        assert meant.withheld is None


@pytest.mark.parametrize(("pointed", "content"), [(asking(7), "#7 blue"), (deciding(7), "#7 yes")])
def test_a_question_whose_time_is_over_takes_no_answer_even_if_nobody_noted_it(pointed: Question, content: str) -> None:
    late = NOW + timedelta(hours=1)
    assert pointed.status_at(late - timedelta(microseconds=1)) is QuestionStatus.OPEN
    assert pointed.status_at(late) is QuestionStatus.EXPIRED
    assert outcome(answer_named_question(parse_reply(content), BOSS, pointed, late)) == "told"


def test_the_number_of_an_old_question_in_somebody_elses_message_is_just_a_number() -> None:
    over = asking(7, QuestionStatus.ANSWERED)
    assert outcome(answer_named_question(parse_reply("#7 is broken again"), ALAN, over, NOW)) == "message"


# From another lane


@pytest.mark.parametrize(
    ("pointed", "speaker", "content", "expected"),
    [
        (deciding(7), ALAN, "yes #7", "#7 'yes' approved"),
        (deciding(7), BOSS, "#7 no", "#7 'no' denied"),
        (deciding(7), GRACE, "yes #7", "message"),
        (deciding(7), SLACKER, "yes #7", "message"),
        (deciding(7, QuestionStatus.DENIED), ALAN, "yes #7", "told"),
        (deciding(7), ALAN, "#7 is broken", "message"),
        (asking(7), GRACE, "#7 blue", "message"),
        (asking(7), BOSS, "#7 blue", "message"),
    ],
)
def test_only_an_approval_is_answered_from_elsewhere_and_strangers_learn_nothing_of_it(
    pointed: Question, speaker: Speaker, content: str, expected: str
) -> None:
    assert outcome(answer_other_lane(parse_reply(content), speaker, pointed, NOW)) == expected


# An operator


def test_an_operator_answers_what_is_asked() -> None:
    assert outcome(operator_answer(asking(7), " blue ", None, NOW)) == "#7 'blue'"
    assert outcome(operator_answer(deciding(7), None, True, NOW)) == "#7 'yes' approved"
    assert outcome(operator_answer(deciding(7), None, False, NOW)) == "#7 'no' denied"
    assert outcome(operator_answer(asking(7), " bl\udcffue\0 ", None, NOW)) == "#7 'bl\ufffdue'"


@pytest.mark.parametrize(
    ("question", "words", "approves", "hint"),
    [
        (deciding(7), "yes", None, "approve or deny it"),
        (asking(7), None, True, "answer it with a text"),
        (asking(7), "  ", None, "answer it with a text"),
    ],
)
def test_an_operator_is_told_what_a_question_takes(
    question: Question, words: str | None, approves: bool | None, hint: str
) -> None:
    with pytest.raises(InvalidMessage, match=hint):
        operator_answer(question, words, approves, NOW)


def test_an_operator_cannot_answer_what_is_over() -> None:
    with pytest.raises(Conflict, match="denied"):
        operator_answer(deciding(7, QuestionStatus.DENIED), None, True, NOW)
    with pytest.raises(Conflict, match="expired"):
        operator_answer(asking(7), "blue", None, NOW + timedelta(hours=2))


# Choices


def offering(number: int, *choices: str) -> Question:
    question = asking(number)
    question.choices = choices_json(choices)
    return question


@pytest.mark.parametrize(
    ("content", "number", "words"),
    [("Red #7", 7, "Red"), (" 2 #7 ", 7, "2"), ("no #7 bus #9", 9, "no #7 bus"), ("Red", None, ""), ("#7", None, "")],
)
def test_a_number_may_stand_behind_a_choice(content: str, number: int | None, words: str) -> None:
    what = parse_choice(content)
    assert (what.number, what.words) == (number, words) if what is not None else number is None


@pytest.mark.parametrize(
    "text", [f"a{' ' * 250_000}b", f"a{' #1' * 80_000}x", "#1" * 100_000], ids=["blanks", "numbers", "no words"]
)
def test_a_long_row_of_blanks_or_numbers_is_read_at_once(text: str) -> None:
    assert parse_choice(text) is None
    assert parse_reply(text).number is None


def test_what_may_be_pressed_names_its_question() -> None:
    assert offering(7, "Red", "Blue").build_buttons() == (
        Button(label="Red", value="Red #7"),
        Button(label="Blue", value="Blue #7"),
    )
    assert deciding(8).build_buttons() == (Button(label="Approve", value="yes #8"), Button(label="Deny", value="no #8"))
    assert asking(9).build_buttons() == ()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("2", "#1 'Blue'"),
        ("blue", "#1 'Blue'"),
        ("#1 2", "#1 'Blue'"),
        ("3", "#1 '3'"),
        ("a green one", "#1 'a green one'"),
    ],
)
def test_the_number_of_a_choice_means_it_and_any_other_words_count_as_they_are(content: str, expected: str) -> None:
    question = offering(1, "Red", "Blue")
    what = parse_reply(content)
    meant = (
        answer_named_question(what, GRACE, question, NOW) if what.number else answer_own_lane(what, GRACE, [question])
    )
    assert outcome(meant) == expected
    assert outcome(operator_answer(question, what.words, None, NOW)) == expected
