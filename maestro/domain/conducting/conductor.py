"""Directives of a conductor: on whose request they act, and how their outcomes are told.

See docs/decisions.md: access, tags.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from maestro.domain.agents.agent import CONDUCTOR, Agent
from maestro.domain.jobs.delegations import DelegatedTask
from maestro.domain.messages import Address
from maestro.domain.questions.question import QuestionStatus
from maestro.domain.schedules.expressions import SHORTEST
from maestro.domain.tags.actions import Action, ActionState, is_news
from maestro.domain.tags.grammar import CONDUCTOR_TAGS, Tag, TagName
from maestro.domain.texts import quoted

OWN_STANDING = frozenset({"role", "status"})
"""What a conductor does not change of itself: it would be one no longer, and could not take it back."""

INCOMPLETE = "it was not written completely"
"""Why nothing comes of a tag that is cut short, or has a key that is none."""

QUOTED = "it repeats what I was given to read; ask for it in your own words"
"""Why nothing comes of a quotation."""

_SUBJECT_CHARS = 64
_WISHES = {
    TagName.CREATE_AGENT: ("The agent", "was not created"),
    TagName.UPDATE_AGENT: ("The agent", "was not changed"),
    TagName.CREATE_CRON: ("The cron", "was not created"),
    TagName.CREATE_HEARTBEAT: ("The heartbeat", "was not created"),
    TagName.CREATE_CLIENT: ("The client", "was not created"),
}

_NOT_DONE = {
    TagName.MEMORY: "A fact was not kept",
    TagName.STATE: "A state was not kept",
    TagName.DELEGATE: "A task was not passed on",
}

_DETAIL_CHARS = 300
_MOST_NEWS = 10
NOTED = "Noted."
"""What is said of an answer that held nothing but tags: no message ends silently.

See docs/invariants.md: no silent end.
"""


@dataclass(frozen=True)
class Requester:
    """On whose word an answer acts: the answering agent, and the person (``platform:userId``) who asked it.

    ``person`` is empty where nobody did: a schedule has no requester. ``allowed`` says that the settings name the
    person, ``address`` is where they asked, ``shortest`` the shortest interval that may be planned. ``approval`` is
    where the question stands whether the answer may act, None where nobody had to be asked.
    """

    agent: Agent
    person: str
    is_owner: bool
    allowed: bool
    address: Address
    job_id: str
    shortest: timedelta = SHORTEST
    approval: QuestionStatus | None = None

    @property
    def refusal(self) -> str:
        """Why a conductor's tags are not acted on: the agent is none, or nobody asked who may; empty when they are."""
        if self.agent.role != CONDUCTOR:
            return f"only a conductor can do that, and @{self.agent.slug} is none"
        if not self.person:
            return "nobody asked for it"
        if not (self.is_owner or self.allowed):
            return "only an owner, or a person named in conductor.allowUsers, may ask for it"
        if self.approval in (None, QuestionStatus.ANSWERED):
            return ""
        return "a person said no" if self.approval is QuestionStatus.DENIED else "nobody approved it in time"

    @property
    def actor(self) -> str:
        """Who did it, for histories and the audit log: the person, or the agent where there is none."""
        return self.person or f"agent:{self.agent.slug}"

    @property
    def reason(self) -> str:
        """Why it was done, for histories."""
        return f"asked of @{self.agent.slug} in job {self.job_id}"


@dataclass(frozen=True)
class ActionOutcome:
    """What came of one tag: ``detail`` is the sentence that people are told, ``subject`` what it was about."""

    state: ActionState
    detail: str
    subject: str = ""


def failure_sentence(tag: Tag, reason: str) -> str:
    """Say why nothing came of one of a conductor's tags."""
    what, outcome = _WISHES[tag.name]
    about = subject_of(tag)
    return f"{what} {f'“{about}” ' if about else ''}{outcome}: {reason.rstrip('.')}."


def quotation_refused(tag: Tag) -> str:
    """Say why nothing came of a tag that repeats what the agent was given to read."""
    if tag.name in CONDUCTOR_TAGS:
        return without_tags(failure_sentence(tag, QUOTED))
    return f"{_NOT_DONE[tag.name]}: {QUOTED}."


def subject_of(tag: Tag) -> str:
    """Return what a tag is about, as far as it can be told when nothing else of it can: its key, slug or name."""
    lines = (line.partition(":") for line in tag.body.splitlines())
    named = {name.strip().lower(): value.strip() for name, _, value in lines}
    return (tag.key or named.get("slug") or named.get("name") or "")[:_SUBJECT_CHARS]


def without_tags(text: str) -> str:
    """Return a text in which nothing that it quotes can be read as a tag."""
    return text.replace("[", "(").replace("]", ")")


def answer_text(visible: str, told: Sequence[str], passed_on: Sequence[DelegatedTask]) -> str:
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


def _instead(passed_on: Sequence[DelegatedTask]) -> str:
    asked = ", ".join(f"@{task.slug}" for task in passed_on if task.hears)
    given = ", ".join(f"@{task.slug}" for task in passed_on if not task.hears)
    return " ".join(
        sentence
        for sentence in (f"I am asking {asked}." if asked else "", f"I passed this on to {given}." if given else "")
        if sentence
    )
