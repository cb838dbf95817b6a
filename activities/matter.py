"""What a job is to answer, and what was said before it, by the kind of the job."""

from collections.abc import Mapping, Sequence

from activities.assignments import EVER, assigned, done_so_far, results, said_before
from maestro.domain.agents.agent import Agent
from maestro.domain.conducting.answers import outcomes_note
from maestro.domain.context.composition import Matter
from maestro.domain.context.history import Utterance
from maestro.domain.context.persona import Colleague, said_by
from maestro.domain.context.quotes import FRESH, told
from maestro.domain.context.recollection import SUMMARIES
from maestro.domain.conversations.conversation import Line, Said
from maestro.domain.inbox import InboxRow
from maestro.domain.jobs.edits import edits_of
from maestro.domain.jobs.job import Job
from maestro.domain.jobs.replay import asked_of
from maestro.domain.llm.prompts import Role
from maestro.domain.llm.tokens import estimate
from maestro.domain.media import spoken_text
from maestro.store.transaction import Transaction

HISTORY_ROWS = 500

Asked = tuple[tuple[Utterance, ...], tuple[Utterance, ...], str]
"""What is to be answered, oldest first, what was said before it, newest first, and what became of its last tags."""


def asked_in(tx: Transaction, job: Job) -> Job:
    """Return the job whose matter a job answers: its own, or that of the job of which it shows the answer."""
    return asked_of(job, tx.jobs.read(job.restarted_from or "")) if job.what_if else job


def matter_of(tx: Transaction, job: Job, asked: Sequence[InboxRow]) -> Matter:
    """Return what the job is to answer, and what was said before."""
    user_name = next((row.user_name for row in asked if row.id == job.inbox_id), "")
    if job.task:
        return Matter(turns=(assigned(tx, job),), user_name=user_name)
    own = done_so_far(tx, job) if job.parent_id is not None else ()
    if own:
        return Matter(turns=(results(tx, job),), earlier=own, user_name=user_name)
    turns, earlier, note = _asked(tx, job, asked) if job.parent_id is None else _results(tx, job)
    return Matter(
        turns=turns,
        earlier=earlier,
        summaries=tuple(tx.compactions.latest(job.conversation_id or 0, SUMMARIES)),
        user_name=user_name,
        note=note,
    )


def _asked(tx: Transaction, job: Job, asked: Sequence[InboxRow]) -> Asked:
    """Return the messages that a job answers, and what was said before them."""
    if job.what_if:
        return _untouched(tx, job, asked)
    # Messages that are answered together are asked together; the newest of them ends the history.
    last = tx.conversations.recall(asked[-1].id)
    if last is None:
        return (), (), ""
    ids = {row.id or 0 for row in asked}
    newest_first = _up_to(tx, job, last, ids)
    quotes = _quotes(tx, job, asked, [line for line in newest_first if line.inbox_id not in ids])
    turns: list[Utterance] = []
    earlier: list[Utterance] = []
    for line, utterance in zip(newest_first, _said(tx, newest_first, job), strict=True):
        if line.inbox_id in ids:
            quote = quotes.get(line.inbox_id, "")
            turns.append(_changed(job, line.inbox_id, utterance._replace(quote=quote) if quote else utterance))
        else:
            earlier.append(utterance)
    return tuple(reversed(turns)), tuple(earlier), _note(tx, newest_first)


def _note(tx: Transaction, newest_first: Sequence[Line]) -> str:
    """Return what became of the tags of the agent's last answer; one that is plain had none that was not done."""
    own = (line for line in newest_first if line.role is Role.ASSISTANT and line.agent_id is None)
    last = next(own, None)
    return outcomes_note(tx.actions.of(last.job_id)) if last is not None and last.plain_chars is None else ""


def _untouched(tx: Transaction, job: Job, asked: Sequence[InboxRow]) -> Asked:
    """Return the same without a change anywhere: what was never recorded, or is archived, stays so.

    See docs/decisions.md: what-if.
    """
    recorded = {row.id: tx.conversations.recorded(row.id) for row in asked}
    last = recorded[asked[-1].id]
    found = last.conversation_id if last is not None else _conversation(tx, job, asked[-1])
    newest = tx.conversations.newest(found, (last.id if last is not None else None) or EVER, HISTORY_ROWS)
    earlier = [line for line in newest if line.inbox_id is None or line.inbox_id not in recorded]
    files = tx.media.of([row.id or 0 for row in asked])
    quotes = _quotes(tx, job, asked, earlier)
    turns: list[Utterance] = []
    for row in asked:
        own, message = files.get(row.id or 0, ()), recorded[row.id]
        text = message.content if message is not None else spoken_text(row.content, own)
        number = message.id if message is not None else None
        said = Utterance(Role.USER, text, estimate(text), number, tuple(own), quote=quotes.get(row.id, ""))
        turns.append(_changed(job, row.id, said))
    return tuple(turns), tuple(_said(tx, earlier, job)), _note(tx, earlier)


def _quotes(
    tx: Transaction, job: Job, asked: Sequence[InboxRow], newest_first: Sequence[Line]
) -> Mapping[int | None, str]:
    """Return what is told before messages that reply to something, unless the model has it in mind anyway."""
    found = ((row.id, tx.quotes.of(row, job.agent_id)) for row in asked if row.reply_to)
    at_hand = {row.id for row in asked}
    return {
        number: told(quote)
        for number, quote in found
        if quote is not None and quote.inbox_id not in at_hand and not quote.is_one_of(newest_first[:FRESH])
    }


def _conversation(tx: Transaction, job: Job, row: InboxRow) -> int:
    """Return the conversation in which a message that was never recorded would be, 0 for a new one."""
    binding = tx.agents.read_binding(job.address)
    keyed = binding is not None and binding.key_by_user
    found = tx.conversations.find(job.agent_id or 0, row, keyed_by_user=keyed).conversation
    return (found.id if found is not None else None) or 0


def _changed(job: Job, inbox_id: int | None, utterance: Utterance) -> Utterance:
    """Return what the model reads: what an operator wrote in the place of the job's own message, else what was said."""
    prompt = edits_of(job).prompt
    if prompt is None or inbox_id != job.inbox_id:
        return utterance
    return Utterance(Role.USER, prompt, estimate(prompt), files=utterance.files)


def _up_to(tx: Transaction, job: Job, last: Said, asked: set[int]) -> list[Line]:
    """Return what was said up to the last message; with all its words where they have to be told as another's."""
    conversation_id = job.conversation_id or 0
    if _host(tx, job) is not None:
        return tx.conversations.newest(conversation_id, last.id or EVER, HISTORY_ROWS)
    return tx.conversations.outline(conversation_id, last, HISTORY_ROWS, asked)


def _host(tx: Transaction, job: Job) -> int | None:
    """Return the agent whose conversation it is where an operator chose that another one answers in it."""
    if edits_of(job).agent is None or job.conversation_id is None:
        return None
    agent_id = tx.conversations.read(job.conversation_id).agent_id
    return agent_id if agent_id != job.agent_id else None


def _results(tx: Transaction, job: Job) -> Asked:
    """Return what became of the tasks that a job goes on with, and what was said in the conversation meanwhile."""
    before = said_before(tx, job, HISTORY_ROWS)
    return (results(tx, job),), tuple(_said(tx, before, job)), _note(tx, before)


def _said(tx: Transaction, messages: Sequence[Line], job: Job) -> list[Utterance]:
    """Return what messages say, with their files, and whose words they are where another agent said them."""
    files = tx.media.of([line.inbox_id for line in messages if line.has_files and line.inbox_id is not None])
    host = _host(tx, job)
    speakers = [_speaker(line, host) for line in messages]
    others = set(speakers) - {None, job.agent_id}
    authors = {agent_id: said_by(_colleague(tx.agents.read(agent_id))) for agent_id in others}
    return [
        Utterance.of(message, files.get(message.inbox_id or 0, ()), authors.get(speaker, ""))
        for message, speaker in zip(messages, speakers, strict=True)
    ]


def _speaker(message: Line, host: int | None) -> int | None:
    """Return the agent that said something, None for a person and for the agent whose conversation it is."""
    return message.agent_id or (host if message.role is Role.ASSISTANT else None)


def _colleague(agent: Agent) -> Colleague:
    return Colleague(agent.slug, agent.name, agent.description)
