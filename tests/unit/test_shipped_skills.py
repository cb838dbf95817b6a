"""The skills that come with Maestro: what brings in each, and what brings in none of them."""

import re

import pytest

from maestro.domain.llm.models import estimate_tokens
from maestro.domain.skills.files import SkillFile, read_skill
from maestro.domain.skills.skill import Skill, SkillIndex
from maestro.operations.skills import SHIPPED

FILES: tuple[SkillFile, ...] = tuple(read_skill(path.read_bytes()) for path in sorted(SHIPPED.glob("*.md")))
BY_SLUG = {file.slug: file for file in FILES}
MOST_TOKENS = 1_200
"""Three of them still leave most of a small model's window to the conversation."""


def brought_in(message: str) -> set[str]:
    skills = [Skill(file.slug, file.name, file.body, file.keywords, file.patterns) for file in FILES]
    return {skill.slug for skill in SkillIndex(skills).choose_skills(message, frozenset(), None)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.slug)
def test_each_is_whole_and_of_a_useful_size(file: SkillFile) -> None:
    assert file.problems == ()
    assert all((file.name, file.description, file.category, file.version, file.author, file.keywords, file.patterns))
    assert re.match(r"# \w", file.body)
    assert 300 < estimate_tokens(file.body) < MOST_TOKENS


def test_there_are_five_and_each_file_is_called_as_its_skill() -> None:
    assert sorted(BY_SLUG) == ["code-review", "debugging", "editing", "incident-response", "meeting-summary"]
    assert sorted(path.stem for path in SHIPPED.glob("*.md")) == sorted(BY_SLUG)


@pytest.mark.parametrize(
    ("slug", "message"),
    [
        ("code-review", "Can you review this code for me?"),
        ("code-review", "I opened a pull request for the login page, have a look"),
        ("code-review", "please look over my PR before I merge it"),
        ("code-review", "Do you see any bugs in this function?"),
        ("code-review", "some feedback on my implementation would be great"),
        ("code-review", "Could you check my code, it parses dates"),
        ("debugging", "I get this error when I start the server: KeyError: 'name'"),
        ("debugging", "Why does my test keep failing on Fridays?"),
        ("debugging", "my script doesn't work any more since the update"),
        ("debugging", "the build won’t compile"),
        ("debugging", "help me track down this memory leak"),
        ("debugging", "here is the stack trace"),
        ("editing", "Could you proofread my application?"),
        ("editing", "Make this sound more polite: send me the report"),
        ("editing", "Please draft an email to my landlord about the heating"),
        ("editing", "shorten this paragraph to two sentences"),
        ("editing", "check the grammar of the following"),
        ("incident-response", "The checkout service is down since 14:05"),
        ("incident-response", "prod is down!"),
        ("incident-response", "We are seeing 502 errors everywhere"),
        ("incident-response", "help me write the postmortem for last night"),
        ("incident-response", "the error rate is spiking"),
        ("incident-response", "our database went down again"),
        ("meeting-summary", "Summarize the meeting from this transcript"),
        ("meeting-summary", "here are my notes from the call with Acme, write up the action items"),
        ("meeting-summary", "Could you do a recap of today's standup?"),
        ("meeting-summary", "what did we decide yesterday?"),
        ("meeting-summary", "turn this into meeting minutes"),
    ],
)
def test_a_message_that_needs_it_brings_it_in(slug: str, message: str) -> None:
    assert slug in brought_in(message)


@pytest.mark.parametrize(
    "message",
    [
        "hello",
        "what can you do?",
        "What's the weather in Lisbon tomorrow?",
        "The reviews of the new restaurant are great",
        "What's the dress code for tonight?",
        "Look at this function f(x) = x^2, where is its minimum?",
        "What is the fastest way to write a file in Go?",
        "Why is the sky blue?",
        "With one exception, everybody came to the party",
        "Can you check my e-mail inbox?",
        "When is the next meeting?",
        "Call me at five",
        "I feel down today",
        "The API is great, write down its main points",
        "The system of equations is down to two unknowns",
        "Translate 'good morning' into Portuguese",
        "Remind me to buy milk",
        "How do I bake bread that stays fresh?",
        "Which of the two phones has the better camera?",
        "Tell me a joke about penguins",
    ],
)
def test_a_message_that_needs_none_brings_in_none(message: str) -> None:
    assert brought_in(message) == set()


def test_a_message_about_two_things_brings_in_both() -> None:
    assert brought_in("the site is down, and here is the traceback") == {"incident-response", "debugging"}
