"""The checks of ``maestro doctor``, which run at the same time, each with a timeout, and change nothing."""

import asyncio
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from maestro.diagnostics.ports import Examined, broken, check_ports, fine, note
from maestro.diagnostics.services import check_accounts, check_bots, check_connectors, check_temporal
from maestro.domain.errors import ConfigurationError, MaestroError
from maestro.domain.health import Diagnosis
from maestro.domain.schedules.schedule import ScheduleColumns
from maestro.domain.skills.files import choose_files
from maestro.domain.webhooks.webhook import Webhook, checked_secret
from maestro.installation.data_folder import (
    SEALED,
    KeyName,
    SecretKeys,
    data_folder_holder,
    embedded_server_of,
    existing_keys,
    fingerprint_of,
    has_key,
    key_source,
)
from maestro.installation.storage import describe_other_key, open_files
from maestro.operations.skills import SkillFolder
from maestro.settings import Survey, survey_settings
from maestro.settings.environment import find_file
from maestro.store.engine.database import name_of
from maestro.store.engine.schema import read_revision
from maestro.store.engine.sqlite import RESCUE
from maestro.store.inspection import Inspection, inspect_database, is_locked

FOLDER_CHECK = "data folder"

LOW_BYTES = 1024**3
"""Bytes of free space below which doctor adds a note: a busy day takes some hundred megabytes."""
NEEDED_BYTES = 50 * 1024**2
"""Bytes of free space that the first start needs, for two databases and their logs."""

ELSEWHERE = "Set dataDir (--data-dir) to a folder on a local disk that this user may create and write."
MAKE_ROOM = "Free some space on that disk, or move the folder and set dataDir (--data-dir) to its new place."
FULL = (errno.ENOSPC, errno.EDQUOT)
NETWORKED = frozenset({"9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "nfs", "nfs4", "smb3", "smbfs"})
MOUNTS = Path("/proc/self/mounts")

MEDIA_CHECK = "media"
SKILLS_CHECK = "skills"
STORE_CHECK = "store"
SCHEDULES_CHECK = "schedules"
WEBHOOKS_CHECK = "webhooks"
KEYS_CHECK = "keys"
RETENTION_CHECK = "retention"
RETENTION = {"messages_days": "conversations", "jobs_days": "jobs", "calls_days": "texts of model calls"}
"""What is deleted after the days of each setting."""
PAGES_SECONDS = 2.0
"""Seconds for reading the pages of the database; a database that takes longer is read only in part."""
MOST_NAMED = 10
"""The most faulty files, schedules or webhooks that one check names."""

CONFIGURATION_CHECK = "configuration"
FIX = "Correct it; docs/configuration.md lists every key. The other checks run as if this entry were not there."

Result = TypeVar("Result")

READ_SECONDS = 3.0
CHECK_SECONDS = 6.0
"""Seconds for one check; all checks start together, so this is about the limit for all of them."""

Options = Mapping[str, object]


def check_data_folder(subject: Examined) -> list[Diagnosis]:
    """Check the data folder, or the parent in which it will be created."""
    folder = subject.settings.data_dir.absolute()
    existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not existing.is_dir():
        return [broken(FOLDER_CHECK, f"{existing} is not a folder", ELSEWHERE)]
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(os.urandom(256 * 1024))
            probe.flush()
            os.fsync(probe.fileno())
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in FULL:
            return [broken(FOLDER_CHECK, f"{existing} has no space left ({error.strerror})", MAKE_ROOM)]
        return [broken(FOLDER_CHECK, f"{existing} cannot be written: {error.strerror}", ELSEWHERE)]
    held = [fine("holder", f"the data folder is held by {subject.holder}")] if subject.holder.running else []
    return [_diagnose_space(folder, existing), *held]


def _diagnose_space(folder: Path, existing: Path) -> Diagnosis:
    free = shutil.disk_usage(existing).free
    state = f"{folder} can be written" if existing == folder else f"{folder} does not exist yet and can be created"
    kind = _file_system_type(existing)
    if kind in NETWORKED:
        found = f"{state}, but is on a network file system ({kind}), which may lose what a database writes"
        return note(FOLDER_CHECK, found, ELSEWHERE)
    if free < LOW_BYTES:
        diagnosis = broken if free < NEEDED_BYTES else note
        return diagnosis(FOLDER_CHECK, f"{state}; only {free / 1024**2:.0f} MB are free there", MAKE_ROOM)
    return fine(FOLDER_CHECK, f"{state}; {free / 1024**3:.0f} GB are free there")


def _file_system_type(folder: Path) -> str:
    """Return the type of the file system, such as ``nfs``; empty if the system does not report it."""
    try:
        mounts = [line.split(" ") for line in MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    above = [(len(path), kind) for _, path, kind, *_ in mounts if folder.resolve().is_relative_to(path)]
    # The last mount at a path hides the earlier mounts there.
    return sorted(above, key=lambda mount: mount[0])[-1][1] if above else ""


def check_media(subject: Examined) -> list[Diagnosis]:
    """Write, read and delete a small object in the bucket of media files; nothing to check without a bucket."""
    url = subject.settings.media.url
    if not url:
        return []
    try:
        open_files(subject.settings).check_access()
    except MaestroError as error:
        problem, _, fix = str(error).partition(". ")
        return [broken(MEDIA_CHECK, problem, fix)]
    return [fine(MEDIA_CHECK, f"files in {url} can be written, read and deleted")]


def check_skills(subject: Examined) -> list[Diagnosis]:
    """Check the skill files as Maestro reads them at its start; an invalid file disables only its own skill."""
    folder = SkillFolder(subject.settings.skills.folder)
    library = choose_files(folder.read_files(), stored={})
    own = sum(not file.shipped for file in library.chosen.values())
    found = [fine(SKILLS_CHECK, f"{len(library.chosen) - own} of Maestro, {own} of your own in {folder.own}")]
    for source, problem in library.problems[:MOST_NAMED]:
        fix = f"Edit {source}; a running Maestro sees it by itself."
        found.append(note(SKILLS_CHECK, f"{Path(source).name}: {problem}", fix))
    more = len(library.problems) - MOST_NAMED
    if more > 0:
        fix = "Correct the first ones, then run `maestro doctor` again."
        found.append(note(SKILLS_CHECK, f"{more} more problems", fix))
    for agent in subject.settings.agents:
        for slug in sorted(set(agent.skills or ()) - library.chosen.keys()):
            problem = f"the agent {agent.slug} lists the skill {slug}, which does not exist"
            found.append(note(SKILLS_CHECK, problem, "Correct the slug in agents, or put the skill into the folder."))
    return found


def check_store(subject: Examined) -> tuple[Inspection | None, list[Diagnosis]]:
    """Inspect the store without changing it; return the inspection, None if unreadable, and the diagnoses."""
    database = subject.settings.database
    name = name_of(database)
    try:
        # Path.exists would raise an error if this user may not read the folder; os.path.exists returns False.
        is_missing = not (os.path.exists(database) if isinstance(database, Path) else read_revision(database))
        if is_missing:
            return None, [note(STORE_CHECK, f"there is no {name} yet: the first start creates it")]
        inspection = inspect_database(database, PAGES_SECONDS)
    except MaestroError as error:
        problem, _, fix = str(error).partition(". ")
        return None, [broken(STORE_CHECK, problem, fix)]
    found = [_diagnose_pages(name, inspection)]
    if subject.holder.running and isinstance(database, Path) and is_locked(database, PAGES_SECONDS):
        problem = f"{name} cannot be written: another program has held the lock of the database for {PAGES_SECONDS:g} s"
        fix = "End that program, such as an open sqlite3 shell; Maestro then goes on by itself."
        found.append(broken(STORE_CHECK, problem, fix))
    if inspection.open_jobs or inspection.failed_jobs:
        failed = "`maestro jobs list --status failed` shows why; `maestro jobs replay ID` repeats."
        jobs = f"{inspection.open_jobs} open, {inspection.failed_jobs} failed"
        found.append(note("jobs", jobs, failed if inspection.failed_jobs else ""))
    return inspection, found


def _diagnose_pages(name: str, inspection: Inspection) -> Diagnosis:
    if inspection.damage:
        return broken(STORE_CHECK, f"{name} is damaged: {' '.join(inspection.damage.split())}", RESCUE)
    size = f"{inspection.size / 1024**2:.1f} MB"
    if not inspection.thorough:
        return fine(STORE_CHECK, f"{name} ({size}) is of this release; it is too large to read every page now")
    return fine(STORE_CHECK, f"{name} ({size}) is of this release and undamaged")


def check_schedules(planned: Sequence[ScheduleColumns]) -> list[Diagnosis]:
    """Return the diagnoses of schedules; none if there are no schedules."""
    found = []
    for schedule in [schedule for schedule in planned if schedule.follow_error][:MOST_NAMED]:
        problem = f"Temporal did not accept {schedule.ref} ({schedule.name}): {schedule.follow_error}"
        fix = f"Correct it with `maestro schedules edit {schedule.ref}`, or remove it."
        found.append(broken(SCHEDULES_CHECK, problem, fix))
    for schedule in [schedule for schedule in planned if schedule.paused_reason][:MOST_NAMED]:
        problem = f"{schedule.ref} ({schedule.name}) is paused: {schedule.paused_reason}"
        fix = f"Find the cause in its jobs, then run `maestro schedules resume {schedule.ref}`."
        found.append(note(SCHEDULES_CHECK, problem, fix))
    waiting = sum(not schedule.followed and not schedule.follow_error for schedule in planned)
    if waiting:
        fix = "A running Maestro sends them within a second of reaching Temporal."
        found.append(note(SCHEDULES_CHECK, f"{waiting} of {len(planned)} have not been sent to Temporal yet", fix))
    if not planned or found:
        return found
    return [fine(SCHEDULES_CHECK, f"{len(planned)} schedules, all of them known to Temporal")]


def check_webhooks(stored: Sequence[Webhook], keys: SecretKeys) -> list[Diagnosis]:
    """Return the diagnoses of webhooks; none if there are no webhooks."""
    enabled = [webhook for webhook in stored if webhook.enabled]
    found: list[Diagnosis] = []
    for webhook in enabled:
        try:
            checked_secret(webhook.scheme, keys.reveal_key(webhook.secret).get_secret_value())
        except (ConfigurationError, ValueError) as error:
            problem = f"the secret of {webhook.path} cannot be used: {error}"
            if webhook.secret.startswith(SEALED):
                fix = f"Correct that, or make a new secret with `maestro webhooks rotate {webhook.path}`."
                found.append(broken(WEBHOOKS_CHECK, problem, fix))
            else:  # only a note: the dashboard's process may have environment variables that this command lacks
                fix = "Put the secret where the dashboard's process can read it."
                found.append(note(WEBHOOKS_CHECK, problem, fix))
    if not stored or found:
        return found[:MOST_NAMED]
    return [fine(WEBHOOKS_CHECK, f"{len(enabled)} of {len(stored)} are enabled")]


def check_keys(subject: Examined, recorded: Mapping[str, str]) -> list[Diagnosis]:
    """Return where this host has its keys from, and whether they are those ``recorded`` by the hosts of the store."""
    settings, found, fitting = subject.settings, list[Diagnosis](), list[str]()
    for name in KeyName:
        if not has_key(settings, name):
            if name in recorded:
                problem = f"this host has no key keys.{name}, and the other hosts of the store share one"
                found.append(
                    broken(KEYS_CHECK, problem, f"Set keys.{name} (MAESTRO_KEYS_{name.upper()}) to their key.")
                )
            else:
                fitting.append(f"{name}: none yet, Maestro makes one when it needs it")
        elif recorded.get(name) not in {None, fingerprint_of(settings, name)}:
            problem, _, fix = describe_other_key(settings, name).partition(". ")
            found.append(broken(KEYS_CHECK, problem, fix))
        else:
            same = ", the same as that of the store" if name in recorded else ""
            fitting.append(f"{name}: {key_source(settings, name)}{same}")
    return [*found, *([fine(KEYS_CHECK, "; ".join(fitting))] if fitting else [])]


def check_retention(subject: Examined, overrides: Mapping[str, object]) -> list[Diagnosis]:
    """Return which data is deleted by its age; ``overrides`` are settings that were changed while Maestro ran."""
    retention, kept = subject.settings.retention, list[str]()
    for field, what in RETENTION.items():
        alias = type(retention).model_fields[field].alias
        if days := overrides.get(f"retention.{alias}", getattr(retention, field)):
            kept.append(f"{what} after {days} days")
    return [fine(RETENTION_CHECK, f"deletes {', '.join(kept)}" if kept else "off: nothing is deleted by its age")]


def check_configuration(subject: Examined) -> list[Diagnosis]:
    """Return a diagnosis for each problem of the configuration; without one, a diagnosis that names the file in use."""
    survey = subject.survey
    if survey.problems:
        return [broken(CONFIGURATION_CHECK, problem, FIX) for problem in survey.problems]
    if survey.file is None:
        return [fine(CONFIGURATION_CHECK, "no maestro.json here: defaults and environment (`maestro init` writes one)")]
    return [fine(CONFIGURATION_CHECK, f"{survey.file} is in order")]


class DaemonThreads(ThreadPoolExecutor):
    """An executor that runs each call in its own daemon thread, so that a hanging check cannot block the exit."""

    def submit(self, work: Callable[..., Result], /, *arguments: Any, **named: Any) -> "Future[Result]":
        """Run a call in a thread of its own."""
        future: Future[Result] = Future()
        Thread(target=_run_call, args=(future, lambda: work(*arguments, **named)), daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Return at once, without waiting for the calls that still run."""


def _run_call(future: "Future[Result]", work: Callable[[], Result]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    # The future gets every exception, because the caller waits for its result.
    except BaseException as error:  # noqa: BLE001
        future.set_exception(error)
    else:
        future.set_result(result)


def diagnose_installation(
    config_file: Path | None, environment: Mapping[str, str], overrides: Options
) -> Sequence[Diagnosis]:
    """Return the diagnoses of this installation, in the order in which an operator should repair it."""
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(DaemonThreads())
        return runner.run(diagnose_parts(config_file, environment, overrides))


async def diagnose_parts(file: Path | None, environment: Mapping[str, str], overrides: Options) -> Sequence[Diagnosis]:
    subject = await _examined_installation(await read_configuration(file, environment, overrides), environment)
    checks: Mapping[str, Awaitable[list[Diagnosis]]] = {
        "data folder": asyncio.to_thread(check_data_folder, subject),
        "store": _store_and_connectors(subject),
        "Temporal": check_temporal(subject),
        "accounts": check_accounts(subject),
        "media": asyncio.to_thread(check_media, subject),
        "skills": asyncio.to_thread(check_skills, subject),
        "ports": check_ports(subject),
    }
    groups = await asyncio.gather(*(_run_check(name, check) for name, check in checks.items()))
    return [*check_configuration(subject), *(diagnosis for group in groups for diagnosis in group)]


async def read_configuration(file: Path | None, environment: Mapping[str, str], overrides: Options) -> Survey:
    """Read the configuration; without a readable file, read only the environment and the command-line options."""
    try:
        found = await asyncio.to_thread(find_file, file, environment)
        async with asyncio.timeout(READ_SECONDS):
            return await asyncio.to_thread(survey_settings, found, environment, overrides)
    except ConfigurationError as error:
        problem = str(error)
    except TimeoutError:
        problem = f"reading maestro.json, or a file it refers to, took over {READ_SECONDS:g} seconds; check its disk"
    defaults = survey_settings(None, environment, overrides)
    return Survey(defaults.settings, (problem, *defaults.problems), None, {})


async def _examined_installation(survey: Survey, environment: Mapping[str, str]) -> Examined:
    folder = survey.settings.data_dir
    try:
        async with asyncio.timeout(1.0):
            holder, server = await asyncio.gather(
                asyncio.to_thread(data_folder_holder, folder), asyncio.to_thread(embedded_server_of, folder)
            )
    except TimeoutError:  # The diagnosis `check_data_folder` reports a folder that does not answer.
        return Examined(survey, environment)
    return Examined(survey, environment, holder, server)


async def _store_and_connectors(subject: Examined) -> list[Diagnosis]:
    inspection, diagnoses = await asyncio.to_thread(check_store, subject)
    inspection = inspection or Inspection(damage="", thorough=False)
    keys = await asyncio.to_thread(existing_keys, subject.settings, subject.environment)
    return [
        *diagnoses,
        *await asyncio.to_thread(check_keys, subject, inspection.fingerprints),
        *check_retention(subject, inspection.overrides),
        *check_schedules(inspection.schedules),
        *check_webhooks(inspection.webhooks, keys),
        *await check_connectors(subject, inspection.connectors),
        *await asyncio.to_thread(check_bots, subject, inspection.connectors, inspection.bots),
    ]


async def _run_check(name: str, check: Awaitable[list[Diagnosis]]) -> list[Diagnosis]:
    """Run one check with its timeout; a check that fails becomes a diagnosis, so that the others are still reported."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await check
    except TimeoutError:
        found = f"the check did not finish within {CHECK_SECONDS:g} seconds"
        return [broken(name, found, "Find what hangs: a network disk, a name server, or a machine that is off.")]
    except MaestroError as error:  # The text of a MaestroError already names the fix.
        return [broken(name, str(error), "Correct that, then run `maestro doctor` again.")]
    # An unexpected error becomes a diagnosis, so that the other checks still run.
    except Exception as error:  # noqa: BLE001
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return [broken(name, f"the check itself failed: {reason}", "Please report this with the line above.")]
