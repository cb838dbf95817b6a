"""Deletion of what is older than the retention settings allow (docs/howto/read-and-delete-conversations.md)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, or_, update
from sqlalchemy import select as columns
from sqlmodel import col

from maestro.domain.agent_chat import ChatReminder
from maestro.domain.conversations.conversation import ArchivedMessage, Conversation, Message, RemovalPlan
from maestro.domain.deliveries import UNSENT, Delivery, JobFile, OutboundLane
from maestro.domain.drafts import Draft
from maestro.domain.jobs.batches import ReplayBatch, ReplayItem
from maestro.domain.jobs.job import OPEN, Job, JobStep
from maestro.domain.llm.budgets import Reservation
from maestro.domain.llm.calls import LLMCall, Prompt, PromptPart
from maestro.domain.media import MediaFile
from maestro.domain.messages import InboxRow
from maestro.domain.questions.question import Question
from maestro.domain.schedules.schedule import Cron, Heartbeat
from maestro.domain.tags.actions import Action
from maestro.domain.tools import ToolPicture, ToolRun
from maestro.store.conversations.removals import Removals, media_path, queries_since, reference_queries
from maestro.store.engine.statements import split_into_batches

REDELIVERY = timedelta(days=30)
"""How long the inbox keeps the ids of messages at least: a platform may deliver a message again for days."""

FAMILY = (Job.parent_id, Job.merged_into, Job.restarted_from)
OTHERS = -1
"""The owner of texts to which a job outside of the batch refers."""


@dataclass(frozen=True)
class TextOwners:
    """Which groups of jobs refer to each stored text, as found before the deletion, because the search takes long.

    The owners are indexes of ``groups``; ``marks`` and ``at`` say what the search covered, as in ``RemovalPlan``.
    """

    groups: Sequence[frozenset[str]]
    owners: Mapping[str, frozenset[int]]
    marks: tuple[int, int]
    at: datetime

    def plan_group(self, index: int, done: Collection[int], conversation_id: int = 0) -> RemovalPlan:
        """Return the plan for a group, with the texts that only this group and deleted groups refer to."""
        gone = {*done, index}
        parts = frozenset(digest for digest, owners in self.owners.items() if index in owners and owners <= gone)
        return RemovalPlan(conversation_id, self.groups[index], parts, self.marks, self.at)


class Retention(Removals):
    """Queries that find and delete old rows; each deletes few rows, so that its transaction is short."""

    def list_idle_conversations(self, before: datetime, besides: Collection[int], limit: int) -> Sequence[int]:
        """Return conversations without a message since ``before``, the longest idle first."""
        idle = columns(col(Conversation.id)).where(col(Conversation.last_message_at) < before)
        rows = self._run_statement(idle.order_by(col(Conversation.last_message_at)).limit(limit + len(besides)))
        return [row[0] for row in rows if row[0] not in besides][:limit]

    def list_conversation_jobs(self, conversation_id: int) -> frozenset[str]:
        """Return the jobs that are deleted with a conversation; raises ``Conflict`` while one is open."""
        return frozenset(self._list_ended_job_ids(conversation_id))

    def list_old_jobs(
        self, before: datetime, after: tuple[datetime, str], limit: int, *, with_calls: bool
    ) -> Sequence[tuple[datetime, str]]:
        """Return the ends and ids of jobs that ended before a time, in this order, after an end and an id.

        ``with_calls`` leaves out jobs whose model calls were deleted already.
        """
        ended = col(Job.completed_at)
        later = or_(ended > after[0], (ended == after[0]) & (col(Job.id) > after[1]))
        found = columns(ended, col(Job.id)).where(ended.is_not(None), ended >= after[0], ended < before, later)
        if with_calls:
            found = found.where(~col(Job.calls_deleted))
        return [(row[0], row[1]) for row in self._run_statement(found.order_by(ended, col(Job.id)).limit(limit))]

    def find_owners(self, groups: Sequence[frozenset[str]]) -> TextOwners:
        """Find the stored texts of groups of jobs, and who else refers to them; slow, because it reads all prompts."""
        group_of = {job_id: index for index, jobs in enumerate(groups) for job_id in jobs}
        owners: dict[str, set[int]] = {}
        for digests in self._own_digests(group_of):
            owners.update({digest: set() for digest in digests})
        marks = (self._read_highest_value(Prompt.id), self._read_highest_value(LLMCall.id))
        for job_id, digests in self._read_references(reference_queries()):
            for digest in owners.keys() & digests:
                owners[digest].add(group_of.get(job_id, OTHERS))
        return TextOwners(groups, {digest: frozenset(by) for digest, by in owners.items()}, marks, self._now)

    def find_unneeded(self, job_ids: Collection[str], before: datetime) -> list[str]:
        """Return those of the jobs that ended before a time and that nothing open needs.

        A job is needed by an open job of its family (delegation, merge, restart, same message), a chunk that is not
        sent or unconfirmed, an outbound lane, a reservation of a budget, an open batch, or a schedule's last run.
        """
        ended = columns(col(Job.id)).where(
            col(Job.id).in_(job_ids), col(Job.completed_at) < before, col(Job.status).not_in(OPEN)
        )
        old = {row[0] for row in self._run_statement(ended)}
        item_open = columns(col(ReplayItem.job_id)).join(ReplayBatch, col(ReplayBatch.id) == col(ReplayItem.batch_id))
        users: tuple[Any, ...] = (
            columns(col(Delivery.job_id)).where(col(Delivery.job_id).in_(old), col(Delivery.state).in_(UNSENT)),
            columns(col(OutboundLane.job_id)).where(col(OutboundLane.job_id).in_(old)),
            columns(col(Reservation.job_id)).where(col(Reservation.job_id).in_(old)),
            item_open.where(col(ReplayBatch.ended_at).is_(None), col(ReplayItem.job_id).in_(old)),
            *(columns(col(table.last_job_id)).where(col(table.last_job_id).in_(old)) for table in _SCHEDULES),
        )
        for query in users:
            old -= {row[0] for row in self._run_statement(query)}
        return sorted(old - self._find_with_open_family(old))

    def delete_calls(self, plan: RemovalPlan) -> None:
        """Delete the prompts, requests, answers and tool results of jobs; accounts, tokens and costs stay."""
        ids = sorted(plan.jobs)
        since = self._find_digests_of_others(plan.parts, plan.jobs, queries_since(plan))
        pictures = self._digests_of(ToolPicture, ids)
        for gone in (Prompt, ToolPicture):
            self._run_statement(delete(gone).where(col(gone.job_id).in_(ids)))
        emptied: dict[str, Any] = {"content": "", "tool_calls": "", "request": ""}
        self._run_statement(update(LLMCall).where(col(LLMCall.job_id).in_(ids)).values(**emptied))
        emptied = {"arguments": "", "result": "", "error": ""}
        self._run_statement(update(ToolRun).where(col(ToolRun.job_id).in_(ids)).values(**emptied))
        self._run_statement(update(Job).where(col(Job.id).in_(ids)).values(calls_deleted=True))
        parts = sorted(plan.parts - since)
        self._run_statement(delete(PromptPart).where(col(PromptPart.digest).in_(parts)))
        self._record_unused(pictures)

    def find_without_messages(self, job_ids: Iterable[str]) -> list[str]:
        """Return the jobs to which no kept message of a conversation belongs."""
        ids = set(job_ids)
        for table in (Message, ArchivedMessage):
            kept = columns(col(table.job_id)).where(col(table.job_id).in_(ids))
            ids -= {row[0] for row in self._run_statement(kept)}
        return sorted(ids)

    def delete_jobs(self, job_ids: Sequence[str]) -> None:
        """Delete jobs with all their rows; the inbox keeps the ids of their messages for ``REDELIVERY``."""
        inbox = {row[0] for row in self._run_statement(columns(col(Job.inbox_id)).where(col(Job.id).in_(job_ids)))}
        answers = columns(col(Question.inbox_id)).where(col(Question.job_id).in_(job_ids))
        inbox |= {row[0] for row in self._run_statement(answers)}
        files = self._digests_of(JobFile, job_ids)
        parts = (JobStep, Delivery, LLMCall, Prompt, ToolRun, ToolPicture, JobFile, Action, Question, Draft)
        for table in (*parts, ChatReminder):
            self._run_statement(delete(table).where(col(table.job_id).in_(job_ids)))
        self._run_statement(delete(Job).where(col(Job.id).in_(job_ids)))
        self._record_unused(files)
        self._empty_inbox(self._find_unused_inbox([row for row in inbox if row is not None]))

    def delete_inbox(self, after: int, limit: int) -> tuple[int, int]:
        """Delete old inbox rows to which nothing refers any more, among the next ``limit`` ids after one.

        Return the last id of these, 0 at the end, and the number of deleted rows.
        """
        oldest = columns(col(InboxRow.id)).where(
            col(InboxRow.id) > after, col(InboxRow.received_at) < self._now - REDELIVERY
        )
        ids = [row[0] for row in self._run_statement(oldest.order_by(col(InboxRow.id)).limit(limit))]
        unused = self._find_unused_inbox(ids)
        self._run_statement(delete(MediaFile).where(col(MediaFile.inbox_id).in_(unused)))
        self._run_statement(delete(InboxRow).where(col(InboxRow.id).in_(unused)))
        return (ids[-1] if len(ids) == limit else 0), len(unused)

    def _find_unused_inbox(self, inbox_ids: Collection[int]) -> list[int]:
        """Return the inbox rows to which no job, message, question or conversation refers."""
        unused = set(inbox_ids)
        users = (Job.inbox_id, Message.inbox_id, ArchivedMessage.inbox_id, Question.inbox_id)
        for user in (*users, Conversation.closed_by_inbox_id):
            unused -= {row[0] for row in self._run_statement(columns(col(user)).where(col(user).in_(unused)))}
        return sorted(unused)

    def _find_with_open_family(self, job_ids: Collection[str]) -> set[str]:
        """Return those of the jobs to which an open job is related, directly or through ended jobs."""
        related, open_jobs = self._read_families(job_ids)
        reached: set[str | int] = {*open_jobs}
        nearest = reached
        while nearest := {other for one in nearest for other in related[one]} - reached:
            reached |= nearest
        return {job_id for job_id in job_ids if job_id in reached}

    def _read_families(self, job_ids: Collection[str]) -> tuple[Mapping[str | int, set[str | int]], set[str]]:
        """Return what each job of these families refers to or is referred to by, jobs and inbox ids; the open jobs."""
        relatives = columns(col(Job.id), col(Job.status), col(Job.inbox_id), *map(col, FAMILY))
        related: dict[str | int, set[str | int]] = defaultdict(set)
        open_jobs: set[str] = set()
        known, frontier = set(job_ids), set(job_ids)
        while frontier:
            found: set[str] = set()
            for ids in split_into_batches(sorted(frontier)):
                for job_id, status, *links in self._run_statement(relatives.where(col(Job.id).in_(ids))):
                    for link in filter(None, links):
                        related[job_id].add(link)
                        related[link].add(job_id)
                    if not status.ended:
                        open_jobs.add(job_id)
                beside = {link for job_id in ids for link in related[job_id]}
                inbox = {link for link in beside if isinstance(link, int)}
                below = or_(*(col(link).in_(ids) for link in FAMILY), col(Job.inbox_id).in_(inbox))
                found.update(link for link in beside if isinstance(link, str))
                found.update(row[0] for row in self._run_statement(columns(col(Job.id)).where(below)))
            frontier = found - known
            known |= found
        return related, open_jobs

    def _own_digests(self, job_ids: Collection[str]) -> Iterable[set[str]]:
        return (digests for _, digests in self._read_references(reference_queries(job_ids)))

    def _digests_of(self, table: Any, job_ids: Collection[str]) -> set[str]:
        return {row[0] for row in self._run_statement(columns(table.digest).where(table.job_id.in_(job_ids)))}

    def _record_unused(self, digests: Iterable[str]) -> None:
        self._record_removal([media_path(digest) for digest in digests if not self.is_used_again(digest)])


_SCHEDULES: tuple[Any, ...] = (Heartbeat, Cron)
