"""Questions of external agents: put to operators, and polled by the agent until there is an answer."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from maestro.domain.agents.agent import Agent
from maestro.domain.questions.question import Question, QuestionKind, QuestionStatus
from maestro.domain.texts import storable

PLATFORM = "mcp"
"""The platform of a question from an external agent, which has no job."""
MOST_OPEN = 100
"""The most open questions of one external agent, because operators would not read more of them."""


@dataclass(frozen=True)
class OutsideAnswer:
    """The state of a question for the external agent that asked it; ``answer`` is empty until there is one."""

    question_id: int
    status: QuestionStatus
    answer: str = ""


def outside_question(agent: Agent, text: str, context: str, now: datetime, expiry: timedelta) -> Question:
    """Return a question of an external agent, which belongs to no job.

    The texts are trimmed, so that they compare equal when the agent asks again.
    """
    return Question(
        agent_id=agent.id,
        kind=QuestionKind.QUESTION,
        text=storable(text).strip(),
        context=storable(context).strip(),
        asked_at=now,
        expires_at=now + expiry,
    )


def outside_answer(question: Question, now: datetime) -> OutsideAnswer:
    """Return the state of a question at the time ``now``, with its answer."""
    return OutsideAnswer(question.id or 0, question.status_at(now), question.answer)
