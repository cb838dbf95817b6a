"""Questions of agents outside: asked of operators, and asked again by the agent until there is an answer."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from maestro.domain.agents.agent import Agent
from maestro.domain.questions.question import Question, QuestionKind, QuestionStatus
from maestro.domain.texts import storable

PLATFORM = "mcp"
"""Where such a question comes from, in the place where others name the platform of their job."""
MOST_OPEN = 100
"""Open questions of one agent; nobody reads more of them."""


@dataclass(frozen=True)
class OutsideAnswer:
    """What an agent outside is told of its question; ``answer`` is empty until there is one."""

    question_id: int
    status: QuestionStatus
    answer: str = ""


def outside_question(agent: Agent, text: str, context: str, now: datetime, expiry: timedelta) -> Question:
    """Return a question that belongs to no job; the texts are as they are compared when it is asked again."""
    return Question(
        agent_id=agent.id,
        kind=QuestionKind.QUESTION,
        text=storable(text).strip(),
        context=storable(context).strip(),
        asked_at=now,
        expires_at=now + expiry,
    )


def outside_answer(question: Question, now: datetime) -> OutsideAnswer:
    """Return what the agent is told now."""
    return OutsideAnswer(question.id or 0, question.status_at(now), question.answer)
