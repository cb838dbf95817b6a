"""What an answer repeats of what its model was given to read, and whether some of that came from outside."""

from collections.abc import Collection, Iterator, Sequence

from maestro.domain.jobs.flow import AnswerStep
from maestro.domain.jobs.job import Job
from maestro.domain.llm.calls import LLMCall
from maestro.domain.llm.prompts import CallKey, KeptRequest, Role
from maestro.domain.tags.grammar import Parsed, Tag, parse
from maestro.domain.tags.provenance import is_quotation, squeezed
from maestro.store.transaction import Transaction


def final_answer(tx: Transaction, step: AnswerStep) -> Parsed:
    """Return a job's final answer; each directive that repeats what the model was given to read is ``quoted``."""
    call = tx.calls.answer(CallKey(job_id=step.job_id, number=step.number))
    answer = parse(call.content)
    if not answer.tags:  # as in most answers: nothing has to be compared
        return answer
    sources = squeezed(_sources(tx, tx.jobs.get(step.job_id), call))
    return parse(call.content, lambda tag: is_quotation(tag, sources))


def outside_tools(tx: Transaction, job: Job) -> Collection[str]:
    """Return the tools that brought text from outside into a job, or into one it hangs together with by a task."""
    first = tx.delegations.lineage(job)[-1]
    return tx.tool_runs.from_outside([first.id, *(other.id for other in tx.delegations.below([first.id]))])


def repeats_reading(tx: Transaction, step: AnswerStep, tags: Sequence[Tag]) -> bool:
    """Say whether one of these directives stands in an earlier answer for which text from outside was read."""
    call = tx.calls.answer(CallKey(job_id=step.job_id, number=step.number))
    turns = KeptRequest.model_validate_json(tx.prompts.text(call.request)).turns
    own = [turn for turn in turns if turn.role is Role.ASSISTANT and turn.message_id is not None]
    for turn, answer in zip(own, tx.prompts.unpack(own), strict=True):
        source = squeezed([answer.content])
        if any(is_quotation(tag, source) for tag in tags):
            job = tx.jobs.read(tx.conversations.message(turn.message_id).job_id)
            if outside_tools(tx, job):
                return True
    return False


def _sources(tx: Transaction, job: Job, call: LLMCall) -> Iterator[str]:
    """Yield what the model was told, but for what the agent said itself and what its operators had it told.

    That is the message that is answered with its files and quotes, what others said before, the posts of #maestro, a
    payload, tasks and their results, and the results of tools, also where the request holds only a part of them. What
    the person who asks said before is left out: "do it", said of a directive that they have shown, makes it theirs.
    """
    turns = KeptRequest.model_validate_json(tx.prompts.text(call.request)).turns
    told = [turn for turn in turns if turn.role is Role.USER]
    if tx.schedule_runs.is_instructed(job):
        told = [turn for turn in told if turn.chat]
    own = _earlier_of_sender(tx, job, [turn.message_id for turn in told if turn.message_id is not None])
    yield from (turn.content for turn in tx.prompts.unpack([turn for turn in told if turn.message_id not in own]))
    yield from (tx.prompts.text(run.result) for run in tx.tool_runs.of(job.id) if run.result)


def _earlier_of_sender(tx: Transaction, job: Job, message_ids: Collection[int]) -> Collection[int]:
    """Return those of these messages that are no part of what is asked, and of the person who asks."""
    asked = {row.id: row.user_id for row in tx.merges.asked(job)}
    if job.inbox_id not in asked:
        return ()
    written = tx.conversations.written_by(asked[job.inbox_id], message_ids)
    return {message_id for message_id, inbox_id in written.items() if inbox_id not in asked}
