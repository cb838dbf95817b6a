"""Runs all checks of ``maestro doctor`` at the same time, each with a timeout, and changes nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from maestro.diagnostics.ports import check_ports
from maestro.diagnostics.services import check_accounts, check_bots, check_connectors, check_temporal
from maestro.diagnostics.storage import check_data_folder, check_schedules, check_skills, check_store, check_webhooks
from maestro.diagnostics.subject import Examined, broken, fine
from maestro.domain.errors import ConfigurationError, MaestroError
from maestro.domain.health import Diagnosis
from maestro.installation.data_folder import holder_of, server_of
from maestro.installation.keys import existing_keys
from maestro.settings import Survey, survey_settings
from maestro.settings.environment import find_file
from maestro.store.inspection import Inspection

CONFIGURATION_CHECK = "configuration"
FIX = "Correct it; docs/configuration.md lists every key. The other checks run as if this entry were not there."

Result = TypeVar("Result")

READ_SECONDS = 3.0
FOLDER_SECONDS = 1.0
CHECK_SECONDS = 6.0
"""Seconds for one check; all checks start together, so this is about the limit for all of them."""

Options = Mapping[str, object]


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


def examine(config_file: Path | None, environment: Mapping[str, str], overrides: Options) -> Sequence[Diagnosis]:
    """Return the diagnoses of this installation, in the order in which an operator should repair it."""
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(DaemonThreads())
        return runner.run(_examine(config_file, environment, overrides))


async def _examine(file: Path | None, environment: Mapping[str, str], overrides: Options) -> Sequence[Diagnosis]:
    subject = await _examined_installation(await _survey(file, environment, overrides), environment)
    checks: Mapping[str, Awaitable[list[Diagnosis]]] = {
        "data folder": asyncio.to_thread(check_data_folder, subject),
        "store": _store_and_connectors(subject),
        "Temporal": check_temporal(subject),
        "accounts": check_accounts(subject),
        "skills": asyncio.to_thread(check_skills, subject),
        "ports": check_ports(subject),
    }
    groups = await asyncio.gather(*(_run_check(name, check) for name, check in checks.items()))
    return [*check_configuration(subject), *(diagnosis for group in groups for diagnosis in group)]


async def _survey(file: Path | None, environment: Mapping[str, str], overrides: Options) -> Survey:
    """Read the configuration; if its file cannot be read, only the defaults, the environment and the options."""
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
        async with asyncio.timeout(FOLDER_SECONDS):
            holder, server = await asyncio.gather(
                asyncio.to_thread(holder_of, folder), asyncio.to_thread(server_of, folder)
            )
    except TimeoutError:  # `check_data_folder` reports a folder that does not answer
        return Examined(survey, environment)
    return Examined(survey, environment, holder, server)


async def _store_and_connectors(subject: Examined) -> list[Diagnosis]:
    inspection, diagnoses = await asyncio.to_thread(check_store, subject)
    inspection = inspection or Inspection(damage="", thorough=False)
    keys = await asyncio.to_thread(existing_keys, subject.settings, subject.environment)
    return [
        *diagnoses,
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
    except MaestroError as error:  # its text already names the fix
        return [broken(name, str(error), "Correct that, then run `maestro doctor` again.")]
    # An unexpected error becomes a diagnosis, so that the other checks still run.
    except Exception as error:  # noqa: BLE001
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return [broken(name, f"the check itself failed: {reason}", "Please report this with the line above.")]
