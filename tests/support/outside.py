"""What agents outside have, over a store without anything else: their tools, their tokens and a chat."""

import asyncio

from maestro.chat import ChatService
from maestro.domain.agent_chat import ARCHITECT
from maestro.domain.redaction import ScanResult, ScanRules, TextSpan
from maestro.domain.settings.jobs import ChatLimits, ChatSettings, QuestionSettings
from maestro.store.store import Store
from maestro.tools.chat import OutsideTools
from tests.support.job_rows import JobRows

SECRET = "the-secret"
MOST_CHARS = 200


class OneWord:
    """A scanner that knows one secret."""

    def scan(self, text: str, rules: ScanRules) -> ScanResult:
        """Find every place of it."""
        found, at = [], text.find(SECRET)
        while at >= 0:
            found.append(TextSpan(at, at + len(SECRET)))
            at = text.find(SECRET, at + len(SECRET))
        return ScanResult(text, tuple(found))


def chat_of(store: Store) -> ChatService:
    """Return a chat with short posts."""
    return ChatService(store, OneWord(), lambda: ChatSettings(limits=ChatLimits(max_message_chars=MOST_CHARS)))


def outside_tools(rows: JobRows, *, chat: bool = True, patience: float = 0, hours: float = 1) -> OutsideTools:
    """Return the tools of agents outside; by default nobody waits for an answer."""
    rules = QuestionSettings(expiry_hours=hours, patience_seconds=patience)
    return OutsideTools(rows.store, chat_of(rows.store) if chat else None, lambda: rules)


def token_of(rows: JobRows, slug: str = "ada") -> str:
    """Make a token for an agent."""
    with rows.store.begin() as tx:
        return tx.agents.tokens.create_token(tx.agents.get_agent_by_slug(slug), "", "operator").token


def add_agent(rows: JobRows, slug: str, role: str = "coder") -> None:
    """Add an agent."""
    with rows.store.begin() as tx:
        agent = tx.agents.get_agent_by_slug("ada").model_copy(
            update={"id": None, "slug": slug, "name": slug, "role": role}
        )
        tx.agents.save_agent(type(agent)(**agent.model_dump()))


def add_architect(rows: JobRows, slug: str = "arch") -> None:
    """Add an agent that takes no part in the chat."""
    add_agent(rows, slug, ARCHITECT)


async def until_asked(rows: JobRows, number: int) -> None:
    """Return when so many questions are kept."""
    async with asyncio.timeout(60):
        while True:
            with rows.store.view() as tx:
                found, _ = tx.jobs.questions.list_question_page((), None, 100)
            if len(found) >= number:
                return
            await asyncio.sleep(0.01)
