"""The texts of background jobs: heartbeats, crons and webhooks, which have no conversation and may post nothing."""

import re
from zoneinfo import ZoneInfo

from maestro.domain.jobs.job import Job, JobKind, task_of

SILENT = "[SILENT]"
"""The answer of an agent that has nothing to post."""

_WHY = {
    JobKind.HEARTBEAT: "This is a heartbeat of yours",
    JobKind.CRON: "This is a scheduled job of yours",
    JobKind.WEBHOOK: "An external program started this job",
}
_ANSWER_IS_POSTED = "; no user is waiting for you, so ask nothing back. Your answer is posted in the channel."
_MAY_BE_SILENT = f" If there is nothing worth telling, answer only {SILENT}, and nothing is posted."
_SILENT_LINE = re.compile(r"(?:^|\n)[ \t>*_`]*\[SILENT\][ \t.!*_`]*(?=\n|$)", re.IGNORECASE)


def background_text(job: Job, zone: ZoneInfo) -> str:
    """Return the model's input for a background job: the task and why it runs now, with times in ``zone``."""
    slot = job.slot.astimezone(zone) if job.slot is not None else None
    planned = f", planned for {slot:%A %Y-%m-%d %H:%M} ({zone.key})" if slot is not None else ""
    return f"{task_of(job)}\n\n({_WHY[job.kind]}{planned}{_ANSWER_IS_POSTED}{_silence_hint(job)})"


def continuation_text(job: Job) -> str:
    """Return the instruction for an agent that has the results of all tasks it delegated in this job."""
    return f"Go on with your work now, with what you know{_ANSWER_IS_POSTED}{_silence_hint(job)}"


def without_silent_lines(text: str) -> str:
    """Return an answer without its ``SILENT`` lines: empty when it has no other text, so that nothing is posted."""
    return _SILENT_LINE.sub("", text).strip()


def _silence_hint(job: Job) -> str:
    return _MAY_BE_SILENT if job.kind is not JobKind.CRON else ""
