"""The API models of a question, and the questions of external agents, which operators answer."""

from datetime import datetime, timedelta

from maestro.domain.agents.agent import Agent
from maestro.domain.jobs.job import Job
from maestro.domain.people.people import PersonId
from maestro.domain.questions.question import Question, QuestionKind, QuestionStatus
from maestro.domain.texts import storable_text
from maestro.domain.values import Page, View

OUTSIDE_PLATFORM = "mcp"
"""The platform of a question from an external agent, which has no job."""
MOST_OPEN = 100
"""The most open questions of one external agent, because operators would not read more of them."""


def outside_question(agent: Agent, text: str, context: str, now: datetime, expiry: timedelta) -> Question:
    """Return a question of an external agent, its texts trimmed, so that the same question asked again is equal."""
    return Question(
        agent_id=agent.id,
        kind=QuestionKind.QUESTION,
        text=storable_text(text).strip(),
        context=storable_text(context).strip(),
        asked_at=now,
        expires_at=now + expiry,
    )


class QuestionView(View):
    """A question of a job; ``asked_of`` and ``approvers`` are ``platform:userId``, and owners may always answer.

    A question of an external agent has the platform ``mcp``, no job and no channel; only operators answer it.
    ``choices`` are the offered answers; any other answer is valid too. An approval has the ``tool`` to call, and its
    arguments in ``context``. ``answered_by`` may be ``operator``.
    """

    id: int
    kind: QuestionKind
    status: QuestionStatus
    text: str
    context: str
    choices: tuple[str, ...]
    tool: str
    agent: str | None
    job_id: str | None
    platform: str
    account: str
    channel: str
    thread: str
    asked_of: str | None
    approvers: tuple[str, ...]
    answer: str
    answered_by: str
    asked_at: datetime
    expires_at: datetime
    answered_at: datetime | None


class QuestionPage(Page[QuestionView]):
    """A page of questions, newest first."""


def question_view(question: Question, agent: str | None, job: Job | None, now: datetime) -> QuestionView:
    """Return the API model of a question; ``agent`` is the slug of its agent, ``job`` the job that waits, if any."""
    outside = {"platform": OUTSIDE_PLATFORM, "account": "", "channel": "", "thread": ""}
    address = job.address.model_dump() if job is not None else outside
    has_recipient = question.asked_of and not question.approval
    asked_of = str(PersonId(address["platform"], question.asked_of)) if has_recipient else None
    return QuestionView.from_row(
        question,
        **address,
        choices=question.offered,
        status=question.status_at(now),
        agent=agent,
        asked_of=asked_of,
        approvers=tuple(question.approvers.split()),
    )
