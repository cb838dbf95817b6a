"""``maestro doctor``: looks at everything side by side, each look within its time, and changes nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from maestro.bootstrap.checks.accounts import accounts
from maestro.bootstrap.checks.bots import bots
from maestro.bootstrap.checks.configuration import configuration
from maestro.bootstrap.checks.connectors import connectors
from maestro.bootstrap.checks.data_folder import data_folder
from maestro.bootstrap.checks.engine import engine
from maestro.bootstrap.checks.holder import holder_of, server_of
from maestro.bootstrap.checks.ports import ports
from maestro.bootstrap.checks.schedules import schedules
from maestro.bootstrap.checks.skills import skills
from maestro.bootstrap.checks.store import Look, store
from maestro.bootstrap.checks.subject import Subject, broken
from maestro.bootstrap.checks.webhooks import webhooks
from maestro.bootstrap.forgetful import ForgetfulThreads
from maestro.bootstrap.keys import existing_keys
from maestro.domain.diagnosis import Diagnosis
from maestro.domain.errors import ConfigurationError, MaestroError
from maestro.settings import Survey, find_file, survey
from maestro.store.inspection import Inspection

READ_SECONDS = 3.0
FOLDER_SECONDS = 1.0
CHECK_SECONDS = 6.0
"""How long one look may take; all begin together, so this is about how long everything takes at most."""

Options = Mapping[str, object]


def examine(config_file: Path | None, environment: Mapping[str, str], overrides: Options) -> Sequence[Diagnosis]:
    """Return what there is to say about this installation, in the order in which a person would mend it."""
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(ForgetfulThreads())
        return runner.run(_examine(config_file, environment, overrides))


async def _examine(file: Path | None, environment: Mapping[str, str], overrides: Options) -> Sequence[Diagnosis]:
    subject = await _subject(await _survey(file, environment, overrides), environment)
    groups = await asyncio.gather(
        _within("data folder", lambda: asyncio.to_thread(data_folder, subject)),
        _within("store", lambda: _store_and_connectors(subject)),
        _within("Temporal", lambda: engine(subject)),
        _within("accounts", lambda: accounts(subject)),
        _within("skills", lambda: asyncio.to_thread(skills, subject)),
        _within("ports", lambda: ports(subject)),
    )
    return [*configuration(subject), *(diagnosis for group in groups for diagnosis in group)]


async def _survey(file: Path | None, environment: Mapping[str, str], overrides: Options) -> Survey:
    """Read the configuration, without the file where that cannot be read at all."""
    try:
        found = await asyncio.to_thread(find_file, file, environment)
        async with asyncio.timeout(READ_SECONDS):
            return await asyncio.to_thread(survey, found, environment, overrides)
    except ConfigurationError as error:
        problem = str(error)
    except TimeoutError:
        problem = f"reading the file, or one it refers to, took more than {READ_SECONDS:g} seconds; look at its disk"
    without = survey(None, environment, overrides)
    return Survey(without.settings, (problem, *without.problems), None, {})


async def _subject(surveyed: Survey, environment: Mapping[str, str]) -> Subject:
    folder = surveyed.settings.data_dir
    looks = (asyncio.to_thread(holder_of, folder), asyncio.to_thread(server_of, folder))
    try:
        async with asyncio.timeout(FOLDER_SECONDS):
            holder, server = await asyncio.gather(*looks)
    except TimeoutError:  # the check of the data folder will say so
        return Subject(surveyed, environment)
    return Subject(surveyed, environment, holder, server)


async def _store_and_connectors(subject: Subject) -> list[Diagnosis]:
    look: Look = await asyncio.to_thread(store, subject)
    inspection = look.inspection or Inspection(damage="", thorough=False)
    keys = await asyncio.to_thread(existing_keys, subject.settings, subject.environment)
    planned = [*schedules(inspection.schedules), *webhooks(inspection.webhooks, keys)]
    said = inspection.connectors
    connected = [*await connectors(subject, said), *await asyncio.to_thread(bots, subject, said, inspection.bots)]
    return [*look.diagnoses, *planned, *connected]


async def _within(check: str, look: Callable[[], Awaitable[list[Diagnosis]]]) -> list[Diagnosis]:
    """Look, and say so when it takes too long or cannot be done: one check never hides the others."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await look()
    except TimeoutError:
        found = f"there was no answer within {CHECK_SECONDS:g} seconds"
        return [broken(check, found, "See what it waits for: a network disk, a name server, a machine that is off.")]
    except MaestroError as error:  # its text names the fix
        return [broken(check, str(error), "Correct that, then look again.")]
    # What nobody foresaw is a finding too, and the other checks still have something to say.
    except Exception as error:  # noqa: BLE001
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return [broken(check, f"the check itself failed: {reason}", "Please report this with the line above.")]
