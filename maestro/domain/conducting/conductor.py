"""Permissions and reported outcomes of a conductor's directives.

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
from maestro.domain.tags.actions import Action, ActionState, needs_report
from maestro.domain.tags.grammar import CONDUCTOR_TAGS, Tag, TagName
from maestro.domain.texts import quoted

OWN_STANDING = frozenset({"role", "status"})
"""Fields that a conductor may not change in itself: without its role, it could not change them back."""

INCOMPLETE = "the tag was not written completely"
"""The reason given for a tag that is cut off or has an invalid key."""

QUOTED = "the tag repeats text that I was given to read; ask for it in your own words"
"""The reason given for a tag that is a quotation."""

_FAILED_CHANGES = {
    TagName.CREATE_AGENT: ("The agent", "was not created"),
    TagName.UPDATE_AGENT: ("The agent", "was not changed"),
    TagName.CREATE_CRON: ("The cron", "was not created"),
    TagName.CREATE_HEARTBEAT: ("The heartbeat", "was not created"),
    TagName.CREATE_CLIENT: ("The client", "was not created"),
}

_NOT_DONE = {
    TagName.MEMORY: "A fact was not stored",
    TagName.STATE: "A state was not stored",
    TagName.DELEGATE: "A task was not passed on",
}

NOTED = "Noted."
"""The text of an answer that contains only tags: every message gets an answer (docs/invariants.md: no silent end)."""


@dataclass(frozen=True)
class Requester:
    """The origin of an answer's directives: the answering agent and the user (``platform:userId``) of the message.

    ``person`` is empty for a job without a user, as of a schedule. ``allowed`` means that ``conductor.allowUsers``
    lists the user, ``address`` is where the user asked, and ``shortest`` is the shortest interval of a schedule.
    ``approval`` is the status of the approval of the directives, None if no approval was required.
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
        """The reason why a conductor's tags are not executed; empty if they are allowed."""
        if self.agent.role != CONDUCTOR:
            return f"only a conductor can do that, and @{self.agent.slug} is not one"
        if not self.person:
            return "no user asked for it"
        if not (self.is_owner or self.allowed):
            return "only an owner, or a person named in conductor.allowUsers, may ask for it"
        if self.approval in (None, QuestionStatus.ANSWERED):
            return ""
        return "an approver denied it" if self.approval is QuestionStatus.DENIED else "no approver answered in time"

    @property
    def actor(self) -> str:
        """The author of the change for histories and the audit log: the user, or the agent if there is no user."""
        return self.person or f"agent:{self.agent.slug}"

    @property
    def reason(self) -> str:
        """The reason for the change, for histories: the agent and the job."""
        return f"requested from @{self.agent.slug} in job {self.job_id}"


@dataclass(frozen=True)
class ActionOutcome:
    """The outcome of one tag: ``detail`` is the sentence shown to users, ``subject`` the object of the tag."""

    state: ActionState
    detail: str
    subject: str = ""


def failure_sentence(tag: Tag, reason: str) -> str:
    """Return the sentence that gives the reason why one of a conductor's tags failed."""
    noun, outcome = _FAILED_CHANGES[tag.name]
    subject = subject_of(tag)
    return f"{noun} {f'“{subject}” ' if subject else ''}{outcome}: {reason.rstrip('.')}."


def quotation_refusal(tag: Tag) -> str:
    """Return the sentence for a tag that was refused because it repeats text given to the agent."""
    if tag.name in CONDUCTOR_TAGS:
        return without_tags(failure_sentence(tag, QUOTED))
    return f"{_NOT_DONE[tag.name]}: {QUOTED}."


def subject_of(tag: Tag) -> str:
    """Return the object of a tag that was not executed: its key, else its slug or name, else an empty text."""
    lines = (line.partition(":") for line in tag.body.splitlines())
    fields = {name.strip().lower(): value.strip() for name, _, value in lines}
    return (tag.key or fields.get("slug") or fields.get("name") or "")[:64]


def without_tags(text: str) -> str:
    """Return a text with round instead of square brackets, so that nothing in it is read as a tag."""
    return text.replace("[", "(").replace("]", ")")


def answer_text(visible: str, outcome_lines: Sequence[str], passed_on: Sequence[DelegatedTask]) -> str:
    """Return the text of an answer: its text without tags, then a line for each outcome that users must see.

    An answer with no text of its own gets a fixed sentence, so that the user sees that the message was received.
    """
    awaited = ", ".join(f"@{task.slug}" for task in passed_on if task.hears)
    given_away = ", ".join(f"@{task.slug}" for task in passed_on if not task.hears)
    sentences = f"I am asking {awaited}." if awaited else "", f"I passed this on to {given_away}." if given_away else ""
    words = visible or " ".join(filter(None, sentences)) or ("" if outcome_lines else NOTED)
    return "\n\n".join(filter(None, (words, "\n".join(outcome_lines))))


def outcomes_note(actions: Sequence[Action]) -> str:
    """Return the note for the model's next prompt on those tags of its last answer that failed or were changed.

    The details are quoted, because they may contain text written by models.
    """
    news = [action for action in actions if needs_report(action.state, action.detail)]
    lines = [f"- {action.tag}, {action.state}: {quoted(action.detail, 300)}" for action in news[:10]]
    return "\n".join(["Outcomes of tags in your last answer:", *lines]) if lines else ""
