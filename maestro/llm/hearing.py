"""What the chat keeps with an answer, in the answer's own transaction (specification 002, 5 and 6)."""

from maestro.domain.chat.feed import listens
from maestro.domain.chat.turns import chat_only
from maestro.domain.context.rounds import made
from maestro.domain.llm.prompts import LLMRequest, LLMResponse
from maestro.store.transaction import Transaction


def keep_heard(tx: Transaction, request: LLMRequest, response: LLMResponse) -> None:
    """Move the cursor to what the answered request told, and note what the next one has to remind of.

    A request that fails changes nothing: the next one tells and reminds of the same. Nor does a what-if.
    """
    if request.what_if or not listens(request):
        return
    slug, job_id = request.agent, request.key.job_id
    if request.chat_upto > request.chat_after:
        tx.chat.mark_read(slug, request.chat_upto)
    if request.reminded:
        tx.chat_reminders.shown(slug, job_id)
    if chat_only(made(response.tool_calls)):
        tx.chat_reminders.remind(slug, job_id)
