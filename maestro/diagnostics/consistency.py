"""``maestro fsck``: compares the store with itself, with the media folder and with Temporal (ADR 46)."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

from maestro.domain.consistency import ConsistencyReport, Finding, confirm_findings
from maestro.domain.errors import ConfigurationError, TemporalUnavailable
from maestro.domain.jobs.job import JobStatus
from maestro.installation.data_folder import data_folder_holder, embedded_server_of
from maestro.installation.storage import open_files, store_exists
from maestro.settings import Settings
from maestro.store.consistency import ReferencedFile, RowConsistency
from maestro.store.conversations.removals import media_path
from maestro.store.engine.database import administer, name_of
from maestro.store.engine.schema import require_release
from maestro.store.files import ARRIVING, PresentFile
from maestro.store.inspection import inspect_database
from temporal.endpoint import Endpoint
from temporal.executions import OpenWorkflow, find_closed_workflows, read_workflows
from temporal.schedules import schedule_id
from temporal.server_process import HOST

CONFIRM_SECONDS = 3.0
"""The wait before the second check, longer than a step between a workflow and its row takes."""
PAGES_SECONDS = 3600.0
NEW_SECONDS = 3600.0
"""A file younger than this may belong to a row that is written later, such as that of an upload."""
MOST_NAMED = 20

SCHEDULED = "ScheduledWorkflow"
"""The workflow type whose job does not exist before its first step."""

Report = Callable[[str], None]


def check_consistency(settings: Settings, endpoint: Endpoint, report: Report, *, repair: bool) -> ConsistencyReport:
    """Return all contradictions that two checks in a row find.

    With ``repair``, tables that follow from others are computed again, and remains of killed processes are deleted.
    Raises ``ConfigurationError`` without a store, and the errors of an unreadable one.
    """
    if not store_exists(settings):
        raise ConfigurationError(f"there is no Maestro database at {name_of(settings.database)}: nothing to check.")
    check = _Check(settings, endpoint, report)
    findings = check.find_all()
    if findings:
        time.sleep(CONFIRM_SECONDS)
        findings = confirm_findings(findings, check.find_all())
    repaired: list[str] = []
    if repair and findings:
        repaired = check.repair(findings)
        findings = confirm_findings(findings, check.find_all())
    return ConsistencyReport(
        ok=not findings,
        findings=tuple(findings),
        checks=tuple(check.names),
        skipped=tuple(check.skipped),
        repaired=tuple(repaired),
    )


class _Check:
    """All checks of one installation; ``names`` are those that ran, and ``skipped`` says why others did not."""

    def __init__(self, settings: Settings, endpoint: Endpoint, report: Report) -> None:
        self._settings = settings
        self._endpoint = endpoint
        self._report = report
        self._holder = data_folder_holder(settings.data_dir)
        self.names: list[str] = []
        self.skipped: list[str] = []

    def find_all(self) -> tuple[Finding, ...]:
        """Run all checks once."""
        self.names, self.skipped = ["pages", "rows", "media", "temporary files"], []
        return tuple(
            chain(
                self._check_pages(),
                self._check_rows(),
                self._check_media(),
                self._check_temporary_files(),
                self._check_temporal(),
            )
        )

    def repair(self, findings: Sequence[Finding]) -> list[str]:
        """Repair what can be repaired safely; return a sentence for each repair."""
        with administer(self._settings.database, write=True) as connection:
            done = RowConsistency(connection, datetime.now(UTC)).repair_rows(findings)
        stale = [finding.subject for finding in findings if finding.check == "temporary files"]
        if stale:
            files = open_files(self._settings)
            files.delete_stale_folders(time.time() - NEW_SECONDS)
            done.append(f"deleted {len(stale)} temporary folders of killed processes")
        return done

    def _check_pages(self) -> Iterator[Finding]:
        self._report("checking the pages of the database")
        damage = inspect_database(self._settings.database, PAGES_SECONDS).damage
        if damage:
            yield Finding(
                check="pages",
                subject=name_of(self._settings.database),
                problem=f"the database is damaged: {' '.join(damage.split())}",
                fix="Stop Maestro, keep a copy of the file, and restore a backup with `maestro restore`.",
            )

    def _check_rows(self) -> Sequence[Finding]:
        self._report("checking the rows of the store")
        with administer(self._settings.database) as connection:
            require_release(connection, self._settings.database)
            rows = RowConsistency(connection, datetime.now(UTC))
            return list(rows.find_contradictions(dispatching=self._holder.running))

    def _check_media(self) -> Sequence[Finding]:
        """Compare the files that rows name with those of the media folder; both are read in the order of digests."""
        self._report("checking the media files")
        found = _MediaFindings(time.time() - NEW_SECONDS)
        with administer(self._settings.database) as connection:
            rows = RowConsistency(connection, datetime.now(UTC))
            found.discarded = rows.list_discarded()
            present = open_files(self._settings).list_files()
            here = next(present, None)
            for named in rows.list_files():
                while here is not None and here.digest < named.digest:
                    found.add_unnamed(here)
                    here = next(present, None)
                if here is not None and here.digest == named.digest:
                    found.compare_sizes(here, named)
                    here = next(present, None)
                else:
                    found.add_missing(named.digest)
            for rest in filter(None, chain([here], present)):
                found.add_unnamed(rest)
        return list(found.findings)

    def _check_temporary_files(self) -> Iterator[Finding]:
        until = time.time() - NEW_SECONDS
        for folder in (self._settings.data_dir / "media").glob(f"{ARRIVING}*"):
            if folder.stat().st_mtime <= until:
                problem = f"{folder} was left behind by a process that was killed"
                fix = "The next start removes it, and so does `maestro fsck --repair`."
                yield Finding(check="temporary files", subject=folder.name, problem=problem, fix=fix, repairable=True)

    def _check_temporal(self) -> list[Finding]:
        """Compare open jobs with workflows, and rows with schedules; Temporal is read first, because it follows."""
        endpoint = self._find_endpoint()
        if endpoint is None:
            self.skipped.append("Temporal, because the embedded server does not run; `maestro up` starts it.")
            return []
        self._report("comparing the jobs with Temporal")
        try:
            seen = asyncio.run(read_workflows(endpoint, self._settings.temporal.task_queue))
            jobs, known = self._read_jobs(seen.open)
            listed = {workflow.id for workflow in seen.open}
            running = [job_id for job_id, (status, _) in jobs.items() if status == JobStatus.RUNNING]
            closed = asyncio.run(find_closed_workflows(endpoint, [each for each in running if each not in listed]))
        except TemporalUnavailable as error:
            self.skipped.append(f"Temporal: {error}")
            return []
        self.names += ["workflows", "schedules"]
        return [
            *_describe_lost_workflows(closed),
            *_describe_lost_jobs(seen.open, jobs, known),
            *self._check_schedules(seen.schedules),
        ]

    def _find_endpoint(self) -> Endpoint | None:
        if not self._settings.temporal.embedded:
            return self._endpoint
        server = embedded_server_of(self._settings.data_dir)
        return replace(self._endpoint, address=f"{HOST}:{server.port}") if server is not None else None

    def _read_jobs(self, workflows: Sequence[OpenWorkflow]) -> tuple[Mapping[str, tuple[str, int]], frozenset[str]]:
        """Return the open jobs, and the ids of those workflows that have a job, open or ended."""
        with administer(self._settings.database) as connection:
            rows = RowConsistency(connection, datetime.now(UTC))
            return rows.read_open_jobs(), frozenset(each.id for each in workflows if rows.exists_job(each.id))

    def _check_schedules(self, present: frozenset[str]) -> Iterator[Finding]:
        queue, rows = self._settings.temporal.task_queue, self._read_schedules()
        expected = {schedule_id(queue, ref) for ref, sent in rows.items() if sent}
        known = {schedule_id(queue, ref) for ref in rows}
        fix = "A running worker corrects this within schedules.compareMinutes, and at its start."
        lacking = "Temporal does not have this schedule, so it does not run"
        unknown = "Temporal has this schedule, which no row describes"
        differences = [(each, lacking) for each in sorted(expected - present)]
        differences += [(each, unknown) for each in sorted(present - known)]
        for each, problem in differences:
            yield Finding(check="schedules", subject=each, problem=f"{each}: {problem}", fix=fix)

    def _read_schedules(self) -> Mapping[str, bool]:
        with administer(self._settings.database) as connection:
            return RowConsistency(connection, datetime.now(UTC)).list_schedules()


class _MediaFindings:
    """Collects the findings about media files; ``until`` is the time before which an unnamed file was stored."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._more: Counter[str] = Counter()
        self._named: list[Finding] = []
        self.discarded: frozenset[str] = frozenset()

    @property
    def findings(self) -> Iterator[Finding]:
        yield from self._named
        for check, count in self._more.items():
            if count > MOST_NAMED:
                yield Finding(
                    check=check, subject="more", problem=f"{count - MOST_NAMED} more of this kind", fix="See above."
                )

    def add_missing(self, digest: str) -> None:
        """Add a file that rows name and that does not exist."""
        fix = "Copy it from a backup: `maestro restore` into another data folder, then its media folder into this one."
        self._add("missing media", digest, f"the file {digest} is not in the media folder, and rows name it", fix)

    def compare_sizes(self, here: PresentFile, named: ReferencedFile) -> None:
        """Add a file that has another size than its rows say."""
        if named.size is not None and named.size != here.size:
            fix = "Delete it and copy it from a backup."
            problem = f"the file {here.digest} has {here.size} bytes, and its rows say {named.size}"
            self._add("missing media", here.digest, problem, fix)

    def add_unnamed(self, file: PresentFile) -> None:
        """Add a file that no row names, unless it is new or is going to be deleted."""
        if file.changed_at < self._until and media_path(file.digest) not in self.discarded:
            fix = f"Nothing uses it: delete {media_path(file.digest)} in the data folder."
            self._add("unused media", file.digest, f"no row names the file {file.digest} ({file.size} bytes)", fix)

    def _add(self, check: str, digest: str, problem: str, fix: str) -> None:
        self._more[check] += 1
        if self._more[check] <= MOST_NAMED:
            self._named.append(Finding(check=check, subject=digest, problem=problem, fix=fix))


def _describe_lost_workflows(closed: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each running job without an open workflow."""
    fix = "A running worker begins a new run within jobs.reconcileSeconds; start one."
    for job_id, state in closed.items():
        problem = f"job {job_id} is running, and its workflow is {state}"
        yield Finding(check="workflows", subject=job_id, problem=problem, fix=fix)


def _describe_lost_jobs(
    workflows: Sequence[OpenWorkflow], jobs: Mapping[str, tuple[str, int]], known: frozenset[str]
) -> Iterator[Finding]:
    """Yield a finding for each open workflow whose job has ended or does not exist."""
    for workflow in workflows:
        if workflow.id in jobs or (workflow.kind == SCHEDULED and workflow.id not in known):
            continue
        reason = "its job has ended" if workflow.id in known else "the store has no job of this id"
        fix = f"End it: `temporal workflow terminate --workflow-id {workflow.id} --reason 'no open job'`."
        problem = f"workflow {workflow.id} is open, and {reason}"
        yield Finding(check="workflows", subject=workflow.id, problem=problem, fix=fix)
