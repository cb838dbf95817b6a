"""Deletion of conversations with all their texts and files (docs/decisions.md: retention)."""

import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Select, delete, func, update
from sqlalchemy.orm import aliased
from sqlmodel import col, or_, select

from maestro.domain.conversations.conversation import (
    ArchivedMessage,
    Compaction,
    Conversation,
    DiscardedFile,
    Message,
    RemovalPlan,
    RemovedConversation,
)
from maestro.domain.deliveries import Delivery, JobFile
from maestro.domain.drafts import Draft
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.jobs.job import Job
from maestro.domain.llm.calls import LLMCall, Prompt, PromptPart
from maestro.domain.media import MediaFile
from maestro.domain.memory.memory import MemoryFact, MemoryState
from maestro.domain.messages import InboxRow
from maestro.domain.people.people import UploadedFile
from maestro.domain.questions.question import Question
from maestro.domain.tags.actions import Action
from maestro.domain.tools import ToolPicture, ToolRun
from maestro.store.engine.repository import Repository
from maestro.store.engine.statements import split_into_batches

FOLDERS = ("workspaces/{id}", "sessions/{id}", "sessions/{id}-facts", "sessions/{id}-summary")
"""The path patterns of a conversation's folders, relative to the data folder; ``id`` is the conversation's id."""

_DIGEST = re.compile(r'"([0-9a-f]{64})"')


class Removals(Repository):
    """Queries that delete texts of users and models; the rows for accounting (jobs, usage, question times) remain."""

    _also_changes = ("Jobs",)

    def plan_removal(self, conversation_id: int) -> RemovalPlan:
        """Find the stored texts to which only this conversation refers; slow, because the query reads all prompts.

        Raises ``NotFound``, and ``Conflict`` while a job of the conversation is open.
        """
        self.get_conversation(conversation_id)
        jobs = self._list_ended_job_ids(conversation_id)
        own: set[str] = set()
        for ids in split_into_batches(sorted(jobs)):
            own.update(*(digests for _, digests in self._read_references(reference_queries(ids))))
        marks = (self._read_highest_value(Prompt.id), self._read_highest_value(LLMCall.id))
        used_elsewhere = self._find_digests_of_others(own, jobs, reference_queries())
        return RemovalPlan(conversation_id, frozenset(jobs), frozenset(own - used_elsewhere), marks, self._now)

    def carry_out(self, plan: RemovalPlan, actor: str, *, facts: bool) -> None:
        """Delete the conversation that a plan describes; with ``facts``, also the facts learned in the conversation.

        Files are only recorded for a later removal, because a rollback could not restore files. Raises the errors of
        ``plan_removal``, and ``Conflict`` when the conversation continued after the plan was made.
        """
        conversation = self.get_conversation(plan.conversation_id)
        jobs = self._list_ended_job_ids(plan.conversation_id)
        if frozenset(jobs) != plan.jobs:
            raise Conflict(f"conversation {plan.conversation_id} continued meanwhile, so it stays. Delete it again.")
        since = self._find_digests_of_others(plan.parts, jobs, queries_since(plan))
        self._remove_facts(conversation, facts=facts)
        self._empty_inbox(self._list_inbox_ids(jobs, plan.conversation_id))
        self._empty_jobs(jobs)
        for ids in split_into_batches(sorted(plan.parts - since)):
            self._run_statement(delete(PromptPart).where(col(PromptPart.digest).in_(ids)))
        for table in (Message, ArchivedMessage, Compaction):
            self._run_statement(delete(table).where(col(table.conversation_id) == plan.conversation_id))
        self._run_statement(delete(Conversation).where(col(Conversation.id) == plan.conversation_id))
        self._session.add(RemovedConversation(id=plan.conversation_id, at=self._now, actor=actor))
        self._record_removal([folder.format(id=plan.conversation_id) for folder in FOLDERS])
        self._session.flush()

    def get_conversation(self, conversation_id: int) -> Conversation:
        """Return a conversation; the message of ``NotFound`` says whether the conversation was deleted."""
        conversation = self._session.get(Conversation, conversation_id)
        if conversation is None:
            removed = self._session.get(RemovedConversation, conversation_id)
            when = (
                f"was deleted by {removed.actor} on {removed.at:%Y-%m-%d}" if removed is not None else "does not exist"
            )
            raise NotFound(f"conversation {conversation_id} {when}")
        return conversation

    def list_discarded_files(self) -> Sequence[DiscardedFile]:
        """Return the files and folders that are recorded for removal, with paths relative to the data folder."""
        return self._find_all(select(DiscardedFile).order_by(DiscardedFile.path))

    def is_used_again(self, digest: str) -> bool:
        """Return whether a row refers to the file with this digest."""
        places = (select(table.digest) for table in (MediaFile, UploadedFile, JobFile, ToolPicture))
        return any(self._session.exec(place.where(place.selected_columns[0] == digest)).first() for place in places)

    def delete_discarded(self, path: str) -> None:
        """Delete the record of a path for removal, because its file was removed or is in use again."""
        self._run_statement(delete(DiscardedFile).where(col(DiscardedFile.path) == path))

    def _list_ended_job_ids(self, conversation_id: int) -> set[str]:
        """Return a conversation's jobs with merged jobs and delegated tasks; raises ``Conflict`` if one is open."""
        own = select(Job.id).where(Job.conversation_id == conversation_id).cte("its_jobs", recursive=True)
        beside = aliased(Job)
        # PostgreSQL allows one recursive term only, so the three relations are alternatives of one join.
        relations = or_(
            col(Job.merged_into) == beside.id, col(Job.parent_id) == beside.id, col(Job.inbox_id) == beside.inbox_id
        )
        related = own.union(
            select(Job.id).select_from(own).join(beside, col(beside.id) == own.c.id).join(Job, relations)
        )
        of_no_other = or_(col(Job.conversation_id).is_(None), col(Job.conversation_id) == conversation_id)
        rows = self._run_statement(
            select(Job.id, Job.status).join(related, related.c.id == Job.id).where(of_no_other)
        ).all()
        open_job = next((job_id for job_id, status in rows if not status.ended), None)
        if open_job is not None:
            raise Conflict(f"job {open_job} of conversation {conversation_id} is still open. Cancel the job, or wait.")
        return {job_id for job_id, _ in rows}

    def _read_highest_value(self, column: Any) -> int:
        return int(self._run_statement(select(func.coalesce(func.max(column), 0))).scalar_one())

    def _find_digests_of_others(
        self, digests: Collection[str], jobs: Collection[str], queries: Iterable[Select[Any]]
    ) -> set[str]:
        used = set[str]()
        for job_id, texts in self._read_references(queries):
            if job_id not in jobs:
                used.update(texts.intersection(digests))
        return used

    def _read_references(self, queries: Iterable[Select[Any]]) -> Iterator[tuple[str, set[str]]]:
        """Yield each job with the digests that one of its rows refers to (prompt, request or tool call)."""
        for statement in queries:
            for job_id, text in self._session.connection().execute(statement, execution_options={"yield_per": 1000}):
                known = zlib.decompress(text).decode() if isinstance(text, bytes) else text
                yield job_id, {known} if len(known) == 64 else set(_DIGEST.findall(known))

    def _list_inbox_ids(self, jobs: Collection[str], conversation_id: int) -> set[int]:
        """Return the inbox ids of messages that these jobs answer, and of users' answers to questions of the jobs."""
        rows: set[int | None] = set()
        for ids in split_into_batches(sorted(jobs)):
            rows |= set(self._session.exec(select(Job.inbox_id).where(col(Job.id).in_(ids))))
            rows |= set(self._session.exec(select(Question.inbox_id).where(col(Question.job_id).in_(ids))))
        for table in (Message, ArchivedMessage):
            rows |= set(self._session.exec(select(table.inbox_id).where(table.conversation_id == conversation_id)))
        return {row for row in rows if row is not None}

    def _empty_inbox(self, inbox: Collection[int]) -> None:
        """Delete the texts and attachments of messages; record for removal the files that no other row uses."""
        digests: set[str] = set()
        for ids in split_into_batches(sorted(inbox)):
            digests |= set(self._session.exec(select(MediaFile.digest).where(col(MediaFile.inbox_id).in_(ids))))
            rows = self._find_all(select(InboxRow).where(col(InboxRow.id).in_(ids), InboxRow.attachments != "[]"))
            self._run_statement(delete(MediaFile).where(col(MediaFile.inbox_id).in_(ids)))
            digests |= self._delete_uploads([file.id for row in rows for file in row.files()])
            self._run_statement(update(InboxRow).where(col(InboxRow.id).in_(ids)).values(content="", attachments="[]"))
        self._record_removal([media_path(digest) for digest in digests if digest and not self.is_used_again(digest)])

    def _delete_uploads(self, ids: Sequence[str]) -> set[str]:
        """Delete uploads whose file no other message uses; return the digests of the files of all given uploads."""
        rows = self._find_all(select(UploadedFile).where(col(UploadedFile.id).in_(ids)))
        sent = select(MediaFile.digest).where(col(MediaFile.digest).in_([row.digest for row in rows]))
        elsewhere = set(self._session.exec(sent))
        for row in rows:
            if row.digest not in elsewhere:
                self._session.delete(row)
        self._session.flush()
        return {row.digest for row in rows}

    def _empty_jobs(self, jobs: Collection[str]) -> None:
        """Delete all texts and files of jobs, but keep the jobs' times, costs and outcomes."""
        emptied: tuple[tuple[Any, dict[str, Any]], ...] = (
            (LLMCall, {"content": "", "tool_calls": "", "request": ""}),
            (Delivery, {"content": "", "filename": "", "digest": "", "buttons": ""}),
            (ToolRun, {"arguments": "", "result": "", "error": ""}),
            (Question, {"text": "", "context": "", "answer": "", "choices": ""}),
            (Action, {"detail": ""}),
        )
        digests: set[str] = set()
        for ids in split_into_batches(sorted(jobs)):
            for table, values in emptied:
                self._run_statement(update(table).where(table.job_id.in_(ids)).values(**values))
            for files in (JobFile, ToolPicture):
                digests |= set(self._session.exec(select(files.digest).where(col(files.job_id).in_(ids))))
            for gone in (Draft, JobFile, ToolPicture, Prompt):
                self._run_statement(delete(gone).where(col(gone.job_id).in_(ids)))
            self._run_statement(
                update(Job)
                .where(col(Job.id).in_(ids))
                .values(erased=True, conversation_id=None, answer_id=None, task="", notice="")
            )
        self._record_removal([media_path(digest) for digest in digests if not self.is_used_again(digest)])

    def _remove_facts(self, conversation: Conversation, *, facts: bool) -> None:
        """With ``facts``, delete the facts learned in a conversation; otherwise remove only their links to it."""
        learned = col(MemoryFact.source_conversation_id) == conversation.id
        if not facts:
            self._run_statement(update(MemoryFact).where(learned).values(source_conversation_id=None))
            return
        self._run_statement(delete(MemoryFact).where(learned))
        same_place = select(func.count()).select_from(Conversation).where(Conversation.key == conversation.key)
        if self._run_statement(same_place).scalar_one() == 1:
            self._run_statement(delete(MemoryState).where(col(MemoryState.place) == conversation.key))

    def _record_removal(self, paths: Sequence[str]) -> None:
        for path in sorted(set(paths)):
            self._session.merge(DiscardedFile(path=path, at=self._now))


def media_path(digest: str) -> str:
    """Return the path of a media file, relative to the data folder."""
    return f"media/{digest[:2]}/{digest}"


def reference_queries(jobs: Collection[str] | None = None) -> list[Select[Any]]:
    """Return queries for a job id and a text with digests, over all references of these jobs (None: all jobs)."""
    sent = select(LLMCall.job_id, PromptPart.body).join(PromptPart, col(PromptPart.digest) == LLMCall.request)
    queries: list[Any] = [
        select(Prompt.job_id, Prompt.turns),
        select(LLMCall.job_id, LLMCall.request),
        sent,
        select(ToolRun.job_id, ToolRun.arguments),
        select(ToolRun.job_id, ToolRun.result),
    ]
    return queries if jobs is None else [query.where(query.selected_columns[0].in_(jobs)) for query in queries]


def queries_since(plan: RemovalPlan) -> list[Select[Any]]:
    """Return queries for the references to stored texts that were added after a plan was made."""
    prompts, digests, requests, arguments, results = reference_queries()
    prompt, call = plan.marks
    changed = or_(col(ToolRun.finished_at).is_(None), col(ToolRun.finished_at) >= plan.at)
    return [
        prompts.where(col(Prompt.id) > prompt),
        digests.where(col(LLMCall.id) > call),
        requests.where(col(LLMCall.id) > call),
        arguments.where(changed),
        results.where(changed),
    ]
