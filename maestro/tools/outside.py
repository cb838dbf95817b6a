"""The tools for external agents over MCP: the chat, and a question to the operators."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass

from maestro.chat import ChatService
from maestro.domain.agent_chat import chat_author, takes_part
from maestro.domain.agents.agent import Agent
from maestro.domain.errors import Conflict, Forbidden, InvalidEdit
from maestro.domain.questions.question import QuestionStatus, choices_json
from maestro.domain.questions.views import QuestionView, outside_question, question_view
from maestro.domain.settings.tools import QuestionSettings
from maestro.domain.texts import storable
from maestro.store.store import Store
from maestro.tools.ask_question import AskQuestion
from maestro.tools.base import Arguments, ToolFailure, ToolQuestion, canonical
from maestro.tools.chat import OUTSIDE_DESCRIPTION, POST_DESCRIPTION, ChatGetNew, ChatPost, unread_json
from maestro.tools.registry import parse_arguments

LOOK_SECONDS = 0.5
"""The interval in seconds between two reads of an open question's row."""

POSTS_AT_ONCE = 32
"""Threads for posts alone: each may wait for the scanner until its timeout, and must not hold up other requests."""

Result = Mapping[str, object]


@dataclass(frozen=True)
class OutsideTool:
    """A tool for external agents: its name, the schemas of arguments and result as canonical JSON, and its function.

    A ``chat`` tool is only for agents that take part in the chat.
    """

    name: str
    description: str
    parameters: str
    output: str
    call: Callable[[Agent, Arguments], Awaitable[Result]]
    chat: bool = False
    idempotent: bool = False


class OutsideTools:
    """All tools for external agents; without a ``chat`` they can only ask questions."""

    def __init__(self, store: Store, chat: ChatService | None, rules: Callable[[], QuestionSettings]) -> None:
        self.chat = chat is not None
        self._asking = _OperatorQuestions(store, rules)
        self._tools = {tool.name: tool for tool in (*(_chat_tools(chat) if chat else ()), self._asking.tool)}

    def close(self) -> None:
        """End all waits for answers, because the process ends; agents then repeat their question to another process."""
        self._asking.closing.set()

    def of(self, agent: Agent) -> Sequence[OutsideTool]:
        """Return the tools of an agent, always in the same order."""
        return [tool for tool in self._tools.values() if takes_part(agent) or not tool.chat]

    def find(self, name: str, agent: Agent) -> OutsideTool | None:
        """Return a tool of an agent by its name."""
        return next((tool for tool in self.of(agent) if tool.name == name), None)


async def call_outside_tool(tool: OutsideTool, agent: Agent, arguments: Mapping[str, object]) -> Result:
    """Run a tool for an external agent; raises ``ToolFailure`` with the reason if the call is invalid or refused."""
    try:
        return await tool.call(agent, parse_arguments(tool, json.dumps(arguments)))
    except (Conflict, Forbidden, InvalidEdit) as error:
        raise ToolFailure(str(error)) from None


def _chat_tools(chat: ChatService) -> Sequence[OutsideTool]:
    posting = ThreadPoolExecutor(POSTS_AT_ONCE, thread_name_prefix="mcp-post")

    async def post(agent: Agent, arguments: Arguments) -> Result:
        loop, author = asyncio.get_running_loop(), chat_author(agent.slug)
        return asdict(await loop.run_in_executor(posting, chat.post, author, arguments["text"]))

    async def get_new(agent: Agent, arguments: Arguments) -> Result:  # noqa: ARG001 - the tool has no arguments
        return unread_json(await asyncio.to_thread(chat.get_new_outside, agent.slug))

    return (
        OutsideTool("chat.post", POST_DESCRIPTION, ChatPost.spec.parameters, ChatPost.output, post, chat=True),
        OutsideTool(
            "chat.getNew", OUTSIDE_DESCRIPTION, ChatGetNew.spec.parameters, ChatGetNew.output, get_new, chat=True
        ),
    )


class _OperatorQuestions:
    """Asks operators a question and waits for the answer, without holding a thread or a transaction."""

    _standing = canonical(
        {
            "type": "object",
            "properties": {
                "questionId": {"type": "integer", "description": "the number under which people see the question"},
                "status": {
                    "type": "string",
                    "enum": ["open", "answered", "expired"],
                    "description": "open: ask again later; answered: see answer; expired: nobody answered in time",
                },
                "answer": {"type": "string", "description": "what a person said, once somebody has answered"},
            },
            "required": ["questionId", "status"],
            "additionalProperties": False,
        }
    )

    def __init__(self, store: Store, rules: Callable[[], QuestionSettings]) -> None:
        self.closing = asyncio.Event()
        self._store = store
        self._rules = rules
        self._form = AskQuestion()

    @property
    def tool(self) -> OutsideTool:
        """The tool by which external agents ask."""
        return OutsideTool(
            self._form.spec.name, _ASK, self._form.spec.parameters, self._standing, self._ask, idempotent=True
        )

    async def _ask(self, agent: Agent, arguments: Arguments) -> Result:
        rules, now = self._rules(), asyncio.get_running_loop().time
        state = await asyncio.to_thread(self._store_question, agent, self._form.question(arguments), rules)
        until = now() + rules.patience_seconds
        while state.status is QuestionStatus.OPEN and (remaining := until - now()) > 0 and not self.closing.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_SECONDS, remaining)):
                    await self.closing.wait()
            state = await asyncio.to_thread(self._read_answer, agent, state.id)
        answer = {"answer": state.answer} if state.status is QuestionStatus.ANSWERED else {}
        return {"questionId": state.id, "status": str(state.status), **answer}

    def _store_question(self, agent: Agent, question_input: ToolQuestion, rules: QuestionSettings) -> QuestionView:
        with self._store.begin() as tx:
            question = outside_question(agent, question_input.text, question_input.context, tx.now, rules.expiry)
            question.choices = choices_json(tuple(map(storable, question_input.choices)))
            return question_view(tx.jobs.questions.ask_outside(question), agent.slug, None, tx.now)

    def _read_answer(self, agent: Agent, question_id: int) -> QuestionView:
        with self._store.view() as tx:
            return question_view(tx.jobs.questions.get(question_id).question, agent.slug, None, tx.now)


_ASK = (
    "Ask the people who run you a question. Use it only when you cannot go on without a decision or a fact that only a "
    "person has; ask one clear thing. The call waits a short while for the answer. If there is none yet it returns "
    "status open: do something else, and call again with the same question and the same context, which asks nobody "
    "twice; once somebody has answered it returns status answered and the answer. To ask anew, say in the context what "
    "changed."
)
