"""What a conductor may be asked to do, and by whom (docs/decisions.md: access, tags)."""

from dataclasses import dataclass
from datetime import timedelta

from maestro.domain.agents.agent import CONDUCTOR, Agent
from maestro.domain.messages import Address
from maestro.domain.questions.question import QuestionStatus
from maestro.domain.schedules.texts import SHORTEST
from maestro.domain.tags.actions import ActionState
from maestro.domain.tags.grammar import CONDUCTOR_TAGS, Tag, TagName

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
class Performed:
    """What came of one tag: ``detail`` is the sentence that people are told, ``subject`` what it was about."""

    state: ActionState
    detail: str
    subject: str = ""


def sentence(tag: Tag, reason: str) -> str:
    """Say why nothing came of one of a conductor's tags."""
    what, outcome = _WISHES[tag.name]
    about = subject_of(tag)
    return f"{what} {f'“{about}” ' if about else ''}{outcome}: {reason.rstrip('.')}."


def quotation_refused(tag: Tag) -> str:
    """Say why nothing came of a tag that repeats what the agent was given to read."""
    if tag.name in CONDUCTOR_TAGS:
        return without_tags(sentence(tag, QUOTED))
    return f"{_NOT_DONE[tag.name]}: {QUOTED}."


def subject_of(tag: Tag) -> str:
    """Return what a tag is about, as far as it can be told when nothing else of it can: its key, slug or name."""
    lines = (line.partition(":") for line in tag.body.splitlines())
    named = {name.strip().lower(): value.strip() for name, _, value in lines}
    return (tag.key or named.get("slug") or named.get("name") or "")[:_SUBJECT_CHARS]


def without_tags(text: str) -> str:
    """Return a text in which nothing that it quotes can be read as a tag."""
    return text.replace("[", "(").replace("]", ")")
