"""Answers that a question offers: people press one, type its number, or say something else."""

import json
import re
from collections.abc import Sequence

from maestro.domain.messages import MAX_LABEL_CHARS, control_word, pairing_code

LEAST = 2
MOST = 10
CHOICE_CHARS = MAX_LABEL_CHARS
"""Characters of the longest choice, which has to fit on a button."""
_NUMBER = re.compile(r"([0-9]{1,2})[.)]?")


def tidied(choices: Sequence[str]) -> tuple[str, ...]:
    """Return choices as people see them, each on one line."""
    return tuple(" ".join(choice.split()) for choice in choices)


def problem_of(choices: Sequence[str]) -> str:
    """Return why tidied choices cannot be offered, in words for who offers them; empty for those that can, or none."""
    if not all(choices):
        return "A choice is empty. Write what each of them means."
    if len({choice.casefold() for choice in choices}) < len(choices):
        return "Two choices are the same. Each must differ from the others."
    command = next((choice for choice in choices if control_word(choice) or pairing_code(choice)), None)
    if command is not None:
        return f"The choice {command} is what people say to Maestro itself. Name it otherwise."
    return ""


def picked(choices: Sequence[str], words: str) -> str | None:
    """Return the choice that is meant by words that are one, or just the number of one; None for any other words."""
    said = " ".join(words.split()).casefold()
    exact = next((choice for choice in choices if choice.casefold() == said), None)
    number = _NUMBER.fullmatch(said)
    if exact is not None or number is None:
        return exact
    return choices[int(number[1]) - 1] if 1 <= int(number[1]) <= len(choices) else None


def listed(choices: Sequence[str]) -> str:
    """Return what people read below a question; empty where it offers nothing."""
    if not choices:
        return ""
    lines = (f"{number}. {choice}" for number, choice in enumerate(choices, 1))
    return "\n".join(("Answer with a number or your own words:", *lines))


def as_kept(choices: Sequence[str]) -> str:
    """Return choices as a row keeps them: a list in JSON, empty for none."""
    return json.dumps(list(choices), ensure_ascii=False) if choices else ""


def as_offered(kept: str) -> tuple[str, ...]:
    """Return the choices that a row keeps."""
    return tuple(json.loads(kept)) if kept else ()
