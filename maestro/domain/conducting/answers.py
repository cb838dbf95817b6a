"""What people are shown of an answer once its tags are acted on."""

from collections.abc import Sequence

from maestro.domain.jobs.delegations import Handover
from maestro.domain.tags.actions import Action, is_news
from maestro.domain.texts import quoted

_DETAIL_CHARS = 300
_MOST_NEWS = 10
NOTED = "Noted."
"""What is said of an answer that held nothing but tags: no message ends silently.

See docs/invariants.md: no silent end.
"""


def shown(visible: str, told: Sequence[str], passed_on: Sequence[Handover]) -> str:
    """Return the text of an answer: what it says without its tags, then a line for each thing people must be told.

    An answer that says nothing by itself is given words, so that the person knows that it was heard.
    """
    words = visible or _instead(passed_on) or ("" if told else NOTED)
    return "\n\n".join(part for part in (words, "\n".join(told)) if part)


def outcomes_note(actions: Sequence[Action]) -> str:
    """Return what a model is told at its next turn of the tags of its last answer: those that were not simply done.

    What models wrote may stand in the details, so they are quoted.
    """
    news = [action for action in actions if is_news(action.state, action.detail)]
    lines = [f"- {action.tag}, {action.state}: {quoted(action.detail, _DETAIL_CHARS)}" for action in news[:_MOST_NEWS]]
    return "\n".join(["What became of tags in your last answer:", *lines]) if lines else ""


def _instead(passed_on: Sequence[Handover]) -> str:
    asked = ", ".join(f"@{task.slug}" for task in passed_on if task.hears)
    given = ", ".join(f"@{task.slug}" for task in passed_on if not task.hears)
    return " ".join(
        sentence
        for sentence in (f"I am asking {asked}." if asked else "", f"I passed this on to {given}." if given else "")
        if sentence
    )
