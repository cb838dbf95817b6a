"""A deleted conversation leaves nothing that anybody said, and everything that the books need.

See docs/decisions.md: retention.
"""

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from maestro.domain.conversations.conversation import Compaction, ConversationStatus
from maestro.domain.deliveries import Delivery, DeliveryPurpose, JobFile
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.jobs.job import JobEnding, JobStatus
from maestro.domain.jobs.replay import ReplayMode
from maestro.domain.llm.prompts import ImageRef, Role
from maestro.domain.llm.usage import Period, UsageBy, UsageRequest, UsageSum
from maestro.domain.media import MediaFile
from maestro.domain.memory.memory import Fact, FactCategory
from maestro.domain.messages import IncomingMessage, Receipt
from maestro.domain.people.people import UploadedFile
from maestro.domain.tools import ToolRun, ToolState
from maestro.operations.conversations import ConversationOperations, remove_discarded_files
from maestro.operations.jobs import JobOperations
from maestro.store.files import MediaFolder
from tests.support.api_client import no_temporal
from tests.support.job_rows import JobRows
from tests.support.spoken import Spoken

SAID, ANSWERED = "the pelican has landed", "so has the heron"
WORDS = (b"pelican", b"heron")
FACT = "Grace keeps storks"


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[JobRows]:
    rows = JobRows.at(tmp_path)
    yield rows
    rows.store.close()


@pytest.fixture
def control(rows: JobRows, tmp_path: Path) -> ConversationOperations:
    return ConversationOperations(rows.store, tmp_path, MediaFolder(tmp_path / "media"))


def ended(rows: JobRows, job_id: str) -> int:
    """Send the answer of a job and end it; return its conversation."""
    with rows.store.begin() as tx:
        job = tx.jobs.get(job_id)
        messages = tx.conversations.list_messages(job.conversation_id or 0)
        answer = next(said for said in messages if said.job_id == job_id and said.role is Role.ASSISTANT)
        tx.deliveries.add_chunk(
            Delivery(
                job_id=job_id,
                purpose=DeliveryPurpose.ANSWER,
                seq=0,
                content=answer.content,
                created_at=tx.now,
                **job.address.model_dump(),
            )
        )
        tx.jobs.close_job(job_id, JobEnding(status=JobStatus.COMPLETED))
        return job.conversation_id or 0


async def talk(rows: JobRows, said: str = SAID, answered: str = ANSWERED) -> tuple[str, int]:
    """Have something said and answered in a conversation of its own; return the job and the conversation."""
    job_id = await Spoken(rows).answered(said, answered)
    conversation_id = ended(rows, job_id)
    with rows.store.begin() as tx:
        tx.conversations.get(conversation_id).status = ConversationStatus.CLOSED
    return job_id, conversation_id


def used(rows: JobRows) -> Sequence[UsageSum]:
    """Return what each job took."""
    with rows.store.view() as tx:
        return tx.llm.usage.list_sums(UsageRequest(UsageBy.JOB, Period(tx.now.date(), tx.now.date())), 10)


def everything(tmp_path: Path) -> bytes:
    """Return all that the database says, compressed texts too."""
    with closing(sqlite3.connect(tmp_path / "maestro.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        cells = [cell for name in tables for row in database.execute(f"SELECT * FROM {name}") for cell in row]
    return b"\n".join(readable(cell) for cell in cells)


def readable(cell: object) -> bytes:
    if not isinstance(cell, bytes):
        return str(cell).encode()
    try:
        return zlib.decompress(cell)
    except zlib.error:
        return cell


async def test_nothing_that_was_said_is_left(rows: JobRows, control: ConversationOperations, tmp_path: Path) -> None:
    _, conversation_id = await talk(rows)
    with rows.store.begin() as tx:
        said = tx.conversations.list_messages(conversation_id)
        tx.conversations.compactions.archive_messages(conversation_id, [said[0].id or 0])
        tx.conversations.compactions.add_compaction(
            Compaction(
                conversation_id=conversation_id,
                agent_id=1,
                summary="A pelican landed.",
                messages_before=2,
                messages_after=1,
                tokens_saved=1,
                created_at=tx.now,
            )
        )
    assert all(word in everything(tmp_path) for word in WORDS)
    control.delete(conversation_id, "a test", facts=False)
    assert [word for word in WORDS if word in everything(tmp_path)] == []
    with rows.store.view() as tx:
        assert tx.system.audit.list_latest_entries(1)[0].action == "conversation.delete"
    rows.store.close()
    assert [word for word in WORDS if word in (tmp_path / "maestro.db").read_bytes()] == []


async def test_a_file_that_an_agent_sent_goes_unless_it_was_sent_elsewhere(
    rows: JobRows, control: ConversationOperations
) -> None:
    (first, conversation_id), (second, _) = await talk(rows), await talk(rows, "and the stork", "it has landed too")
    with rows.store.begin() as tx:
        for job_id, digest in ((first, "only-here"), (first, "there-too"), (second, "there-too")):
            tx.deliveries.files.add_file(
                JobFile(job_id=job_id, digest=digest, filename="a.txt", caption="a pelican", size=1, created_at=tx.now)
            )
        for job_id, digest in ((first, "shown-here"), (first, "shown-there"), (second, "shown-there")):
            call = ToolRun(
                job_id=job_id,
                number=1,
                place=len(digest),
                tool="t",
                arguments="",
                state=ToolState.DONE,
                started_at=tx.now,
            )
            tx.jobs.tool_runs.store_images(call, [ImageRef(digest=digest, content_type="image/png")])
    control.delete(conversation_id, "a test", facts=False)
    with rows.store.view() as tx:
        assert (tx.deliveries.files.list_files_of_job(first), len(tx.deliveries.files.list_files_of_job(second))) == (
            [],
            1,
        )
        assert [tx.conversations.removals.is_used_again(digest) for digest in ("only-here", "shown-here")] == [
            False,
            False,
        ]
        assert [tx.conversations.removals.is_used_again(digest) for digest in ("there-too", "shown-there")] == [
            True,
            True,
        ]
        assert (tx.jobs.tool_runs.list_images(first), len(tx.jobs.tool_runs.list_images(second))) == ({}, 1)


async def test_the_name_of_a_file_that_was_sent_goes_and_nobody_quotes_it(
    rows: JobRows, control: ConversationOperations, tmp_path: Path
) -> None:
    job_id, conversation_id = await talk(rows)
    with rows.store.begin() as tx:
        place, name = tx.jobs.get(job_id).address, "a pelican.png"
        chunk = Delivery(
            job_id=job_id,
            purpose=DeliveryPurpose.ANSWER,
            seq=1,
            content="",
            filename=name,
            digest="0",
            created_at=tx.now,
            **place.model_dump(),
        )
        tx.deliveries.mark_sent(tx.deliveries.add_chunk(chunk).id or 0, Receipt(platform_message_id="m-7"))
    later = rows.add()
    with rows.store.begin() as tx:
        reply = IncomingMessage(id="r-1", address=place, user_id="u-1", sent_at=tx.now, reply_to="m-7")
        row = tx.inbox.get(tx.inbox.add(reply, later).id)
        quoted = tx.inbox.quotes.find_quoted(row, None)
        assert quoted is not None
        assert quoted.text == name
    control.delete(conversation_id, "a test", facts=False)
    with rows.store.view() as tx:
        assert tx.inbox.quotes.find_quoted(row, None) is None
        assert tx.deliveries.list_sent_since(place, 0, 10) == []
    assert b"pelican" not in everything(tmp_path)


async def test_what_was_shown_of_an_answer_goes(rows: JobRows, control: ConversationOperations) -> None:
    job_id, conversation_id = await talk(rows)
    with rows.store.begin() as tx:
        ended = tx.jobs.read_status(job_id)
        tx.jobs.update_job(job_id, status=JobStatus.RUNNING)
        tx.deliveries.drafts.save_draft_text(job_id, 1, "a pelican lan")
        tx.jobs.update_job(job_id, status=ended)
    control.delete(conversation_id, "a test", facts=False)
    with rows.store.view() as tx:
        assert tx.deliveries.drafts.find_draft(job_id) is None


async def test_what_the_books_need_stays(rows: JobRows, control: ConversationOperations) -> None:
    job_id, conversation_id = await talk(rows)
    before = used(rows)
    control.delete(conversation_id, "a test", facts=False)
    with rows.store.view() as tx:
        record = tx.jobs.lists.read_record(job_id)
        assert (record.listed.job.erased, record.listed.job.conversation_id) == (True, None)
        assert (record.listed.text, [chunk.content for chunk in record.deliveries]) == ("", [""])
        [call] = record.calls
        assert (call.content, call.request, call.input_tokens > 0) == ("", "", True)
        assert used(rows) == before != []
        assert tx.deliveries.list_sent_since(record.listed.job.address, 0, 10) == []


async def test_what_others_refer_to_stays(rows: JobRows, control: ConversationOperations) -> None:
    _, gone = await talk(rows)
    other, kept = await talk(rows, "something else")
    before = Spoken(rows).messages(other)
    control.delete(gone, "a test", facts=False)
    assert Spoken(rows).messages(other) == before
    with rows.store.view() as tx:
        assert tx.llm.prompts.read_text(tx.jobs.lists.read_record(other).calls[0].request)
        assert len(tx.conversations.list_messages(kept)) == 2


async def test_a_number_is_never_given_again(rows: JobRows, control: ConversationOperations) -> None:
    _, gone = await talk(rows)
    control.delete(gone, "a test", facts=False)
    _, later = await talk(rows)
    assert later > gone
    with rows.store.view() as tx, pytest.raises(NotFound, match=f"conversation {gone} was deleted by a test on"):
        tx.conversations.lists.build_conversation_detail(gone)


async def test_an_open_job_keeps_its_conversation(rows: JobRows, control: ConversationOperations) -> None:
    job_id = await Spoken(rows).answered(SAID, ANSWERED)
    with pytest.raises(Conflict, match=f"job {job_id} of conversation 1 is still open"):
        control.delete(1, "a test", facts=False)


async def test_there_is_nothing_left_to_answer(rows: JobRows, control: ConversationOperations) -> None:
    job_id, conversation_id = await talk(rows)
    control.delete(conversation_id, "a test", facts=False)
    jobs = JobOperations(rows.store, no_temporal)
    for mode in ReplayMode:
        with pytest.raises(Conflict, match="were deleted with its conversation"):
            await jobs.replay(job_id, mode, "a test")


async def test_a_plan_that_is_out_of_date_changes_nothing(rows: JobRows) -> None:
    first = await Spoken(rows).answered(SAID, ANSWERED)
    conversation_id = ended(rows, first)
    with rows.store.view() as tx:
        plan = tx.conversations.removals.plan_removal(conversation_id)
    ended(rows, await Spoken(rows).answered("and another", "as you say"))
    with pytest.raises(Conflict, match="meanwhile"), rows.store.begin() as tx:
        tx.conversations.removals.carry_out(plan, "a test", facts=False)
    with rows.store.view() as tx:
        assert len(tx.conversations.list_messages(conversation_id)) == 4


async def test_a_text_that_somebody_uses_since_the_plan_stays(rows: JobRows) -> None:
    _, gone = await talk(rows)
    with rows.store.view() as tx:
        plan = tx.conversations.removals.plan_removal(gone)
    other, _ = await talk(rows)  # the same words on the same day: its prompt has the same parts
    before = Spoken(rows).messages(other)
    with rows.store.begin() as tx:
        tx.conversations.removals.carry_out(plan, "a test", facts=False)
    assert Spoken(rows).messages(other) == before


@pytest.mark.parametrize("facts", [False, True])
async def test_what_was_learned_goes_only_when_asked(
    rows: JobRows, control: ConversationOperations, facts: bool
) -> None:
    _, conversation_id = await talk(rows)
    with rows.store.begin() as tx:
        tx.memory.learn_facts(1, [Fact(FactCategory.STICKY, FACT)], conversation_id=conversation_id)
    control.delete(conversation_id, "a test", facts=facts)
    with rows.store.view() as tx:
        assert [fact.content for fact in tx.memory.find_best_facts(1, 10)] == ([] if facts else [FACT])


def received(rows: JobRows, files: MediaFolder, job_id: str, content: bytes) -> Path:
    """Let a file have come with the message of a job; return where it is."""
    with files.create_temporary_folder() as folder:
        arrived = folder / "file"
        arrived.write_bytes(content)
        digest = files.move_in(arrived)
    with rows.store.begin() as tx:
        inbox_id = tx.jobs.get(job_id).inbox_id
        row = tx.inbox.get(inbox_id)
        row.attachments = f'[{{"id": "upload-{job_id}", "filename": "cat.png"}}]'
        tx.inbox.media.save_file(
            MediaFile(inbox_id=inbox_id or 0, seq=0, digest=digest, filename="cat.png", size=len(content))
        )
        tx.users.add_upload(
            UploadedFile(
                id=f"upload-{job_id}",
                user_id="u-1",
                digest=digest,
                filename="cat.png",
                content_type="image/png",
                size=len(content),
                created_at=tx.now,
            )
        )
    return files.path_of_digest(digest)


async def test_files_go_unless_somebody_else_sent_the_same(
    rows: JobRows, control: ConversationOperations, tmp_path: Path
) -> None:
    files = MediaFolder(tmp_path / "media")
    (job_id, gone), (other, _) = await talk(rows), await talk(rows, "hello")
    alone = received(rows, files, job_id, b"only here")
    third, also_gone = await talk(rows, "look")
    shared = received(rows, files, third, b"in two places")
    received(rows, files, other, b"in two places")
    workspace = tmp_path / "workspaces" / str(gone)
    workspace.mkdir(parents=True)
    for conversation_id in (gone, also_gone):
        control.delete(conversation_id, "a test", facts=False)
    assert [path.exists() for path in (alone, shared, workspace)] == [False, True, False]
    with rows.store.view() as tx:
        assert set(tx.users.list_uploads([f"upload-{name}" for name in (job_id, other)])) == {f"upload-{other}"}
        assert tx.conversations.removals.list_discarded_files() == []


async def test_files_go_at_the_next_start_when_the_process_dies_before(rows: JobRows, tmp_path: Path) -> None:
    job_id, gone = await talk(rows)
    path = received(rows, MediaFolder(tmp_path / "media"), job_id, b"only here")
    with rows.store.view() as tx:
        plan = tx.conversations.removals.plan_removal(gone)
    with rows.store.begin() as tx:
        tx.conversations.removals.carry_out(plan, "a test", facts=False)
    assert path.exists()
    remove_discarded_files(rows.store, tmp_path, MediaFolder(tmp_path / "media"))
    assert not path.exists()
    with rows.store.view() as tx:
        assert tx.conversations.removals.list_discarded_files() == []


async def test_a_file_that_was_sent_again_meanwhile_stays(rows: JobRows, tmp_path: Path) -> None:
    files = MediaFolder(tmp_path / "media")
    (job_id, gone), (other, _) = await talk(rows), await talk(rows, "hello")
    path = received(rows, files, job_id, b"twice")
    with rows.store.view() as tx:
        plan = tx.conversations.removals.plan_removal(gone)
    with rows.store.begin() as tx:
        tx.conversations.removals.carry_out(plan, "a test", facts=False)
    received(rows, files, other, b"twice")
    remove_discarded_files(rows.store, tmp_path, MediaFolder(tmp_path / "media"))
    assert path.exists()
    with rows.store.view() as tx:
        assert tx.conversations.removals.list_discarded_files() == []


async def test_the_other_conversation_of_a_place_keeps_its_states(
    rows: JobRows, control: ConversationOperations
) -> None:
    (_, first), (_, second) = await talk(rows), await talk(rows, "hello")
    with rows.store.begin() as tx:
        key = tx.conversations.get(first).key
        tx.memory.set_state(1, "topic", "storks", memory_scope=key)
    control.delete(first, "a test", facts=True)
    with rows.store.view() as tx:
        assert [state.value for state in tx.memory.read_states(1, key)] == ["storks"]
    control.delete(second, "a test", facts=True)
    with rows.store.view() as tx:
        assert tx.memory.read_states(1, key) == []
