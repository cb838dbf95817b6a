"""``maestro init``: finds accounts on this machine, decides what stands in ``maestro.json``, and writes it."""

import asyncio
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from itertools import count
from pathlib import Path

from maestro.domain.errors import ConfigurationError
from maestro.llm.cli_runner import CLAUDE
from maestro.llm.key_check import KeyCheck, KeyStatus, check_key
from maestro.settings import (
    DEFAULT_CLI_MODEL,
    DEFAULT_MODELS,
    PROVIDER_VARIABLES,
    AccountSettings,
    Survey,
    found_accounts,
    load,
    named_file,
    survey_settings,
    variable_of,
)
from maestro.settings.accounts import account_of
from maestro.settings.addresses import endpoint_of
from temporal.namespace import prepare

OLLAMA = "ollama"
LOCAL_OLLAMA = "http://127.0.0.1:11434"
OLLAMA_SECONDS = 1.5
CLAUDE_PRIORITY = 10
"""Before every account that is paid by the call."""

AccountEntry = Mapping[str, object]

Document = Mapping[str, object]

CONDUCTOR = {"slug": "conductor", "role": "conductor"}


@dataclass(frozen=True)
class Discovery:
    """The accounts for ``llm.accounts``, and a sentence about every finding."""

    accounts: tuple[AccountEntry, ...] = ()
    sentences: tuple[str, ...] = ()

    def __add__(self, other: "Discovery") -> "Discovery":
        return Discovery(self.accounts + other.accounts, self.sentences + other.sentences)


async def discover(environment: Mapping[str, str]) -> Discovery:
    """Look for accounts; only a local Ollama is contacted, and no key is copied.

    Raises ``ConfigurationError`` for an invalid value of a provider's variable.
    """
    found = found_accounts(environment)
    keys = [_by_key(account) for account in found if account.provider != OLLAMA]
    ollama = await _ollama(next((account for account in found if account.provider == OLLAMA), None))
    return sum([*keys, ollama, _claude(environment)], Discovery())


def choose_model(installed: Sequence[str]) -> str | None:
    """Return the installed model to use: the default model if present, else the first that is not for embeddings."""
    default = DEFAULT_MODELS[OLLAMA]
    if default in installed:
        return default
    return next((name for name in installed if "embed" not in name.lower()), None)


def _by_key(account: AccountSettings) -> Discovery:
    variable = variable_of(account)
    entry = {
        "name": account.name,
        "provider": account.provider,
        "model": account.model,
        "apiKey": f"env:{variable}",
        "priority": account.priority,
    }
    return Discovery((entry,), (f"{variable} is set: account {account.name} with {account.model}",))


async def _ollama(named: AccountSettings | None) -> Discovery:
    """Ask the Ollama that the environment names, else the one at the default address."""
    account = named or AccountSettings(name=OLLAMA, provider=OLLAMA, base_url=LOCAL_OLLAMA, priority=200)
    asked = await check_key(replace(account_of(account), model=""), OLLAMA_SECONDS)
    if asked.status is not KeyStatus.ACCEPTED:
        return _no_ollama(account, asked) if named else Discovery()
    model = choose_model(asked.models)
    if model is None:
        pull = f"`ollama pull {DEFAULT_MODELS[OLLAMA]}` installs one"
        return Discovery(sentences=(f"Ollama answers at {account.base_url}, but has no model to talk to; {pull}",))
    entry = {
        "name": account.name,
        "provider": OLLAMA,
        "model": model,
        "baseUrl": account.base_url,
        "priority": account.priority,
    }
    return Discovery((entry,), (f"Ollama answers at {account.base_url}: account {account.name} with {model}",))


def _no_ollama(account: AccountSettings, asked: KeyCheck) -> Discovery:
    variable = PROVIDER_VARIABLES[OLLAMA]
    sentence = f"{variable} is set, but no Ollama answers at {account.base_url} ({asked.detail}): not used"
    return Discovery(sentences=(sentence,))


def _claude(environment: Mapping[str, str]) -> Discovery:
    """Return the command as an account if a user is logged in; the command is not run."""
    command = shutil.which(CLAUDE, path=environment.get("PATH", ""))
    if command is None:
        return Discovery()
    if not _logged_in(environment):
        fix = f"run `{CLAUDE}` once to log in and `maestro init --force` to use it"
        return Discovery(sentences=(f"the command {CLAUDE} is at {command}, but nobody is logged in; {fix}",))
    account = AccountSettings(
        provider="anthropic", name=CLAUDE, type="cli", model=DEFAULT_CLI_MODEL, priority=CLAUDE_PRIORITY
    )
    entry = account.model_dump(include={"name", "type", "model", "priority"})
    return Discovery((entry,), (f"the command {CLAUDE} is at {command}: account {CLAUDE} with {account.model}",))


def _logged_in(environment: Mapping[str, str]) -> bool:
    """Look for the files of a login; the credentials themselves are not read."""
    home = Path(environment.get("HOME") or "~").expanduser()
    own = environment.get("CLAUDE_CONFIG_DIR", "")
    folder, state = (Path(own), Path(own) / ".claude.json") if own else (home / ".claude", home / ".claude.json")
    if environment.get("CLAUDE_CODE_OAUTH_TOKEN") or (folder / ".credentials.json").exists():
        return True
    try:
        return '"oauthAccount"' in state.read_text(encoding="utf-8", errors="replace")
    except OSError:  # the file does not exist, or this user may not read it
        return False


class FileAction(StrEnum):
    """The action on the configuration file."""

    WRITTEN = "written"
    REPLACED = "replaced"
    KEPT = "kept"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class InitRequest:
    """The options of ``maestro init``; an option that was not given is None."""

    file: Path | None
    overrides: Mapping[str, object]
    force: bool
    retention: timedelta


@dataclass(frozen=True)
class InitPlan:
    """The actions of ``maestro init``; ``address`` is the cluster to prepare, empty for none."""

    file: Path
    action: FileAction
    document: Document
    found: Discovery
    address: str


def plan_init(wish: InitRequest, environment: Mapping[str, str]) -> InitPlan:
    """Survey the machine and decide what becomes of the file.

    Raises ``ConfigurationError`` when the file that is there would have to be replaced, or something in it is wrong,
    without ``--force``.
    """
    file = named_file(wish.file, environment)
    present = os.path.lexists(file)
    surveyed = survey_settings(file if present else None, environment, wish.overrides)
    if surveyed.problems and present and wish.force:
        # The old file is replaced, so its problems do not count.
        surveyed = survey_settings(None, environment, wish.overrides)
    if surveyed.problems:
        raise ConfigurationError("; ".join(surveyed.problems))
    found = asyncio.run(discover(environment))
    wanted = compose_document(surveyed, found, wish.overrides)
    address = surveyed.settings.temporal.address
    if not address and wish.overrides.get("temporal.namespace") is not None:
        raise ConfigurationError("a namespace is one of a Temporal server of your own: add --temporal-address")
    named = wish.overrides.get("temporal.address") is not None or wish.overrides.get("temporal.namespace") is not None
    action = decide_action(present, surveyed.written == wanted, wish.force, bool(address) and not named)
    if action is None:
        raise ConfigurationError(
            f"{file} is there already and stays as it is; change it by hand, or add --force to replace it (the old one "
            "is kept beside it)"
        )
    return InitPlan(file, action, wanted, found, address)


def decide_action(present: bool, same: bool, force: bool, only_prepare: bool) -> FileAction | None:
    """Return the action on the file, None when it is not allowed.

    An existing file is replaced only with ``--force``. It needs no replacement if its content would not change, or if
    only the cluster that it names is to be prepared.
    """
    if not present:
        return FileAction.WRITTEN
    if same:
        return FileAction.UNCHANGED
    if force:
        return FileAction.REPLACED
    return FileAction.KEPT if only_prepare else None


def compose_document(surveyed: Survey, found: Discovery, overrides: Mapping[str, object]) -> Document:
    """Return the content of the file.

    The addresses of the data and the cluster are taken over from the old file, because without them the data would be
    lost.
    """
    older = surveyed.written
    data_dir = overrides.get("dataDir") or older.get("dataDir")
    temporal = _temporal(surveyed, older)
    return {
        **({"dataDir": str(data_dir)} if data_dir else {}),
        **({"temporal": temporal} if temporal else {}),
        "agents": [CONDUCTOR],
        "llm": {"accounts": [dict(entry) for entry in found.accounts]},
    }


def write_plan(decided: InitPlan) -> Path | None:
    """Write the file, readable by its owner only; return the path of the backup, None without an older file."""
    if decided.action in (FileAction.KEPT, FileAction.UNCHANGED):
        return None
    try:
        return _write(decided.file.resolve(), json.dumps(decided.document, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigurationError(
            f"{decided.file} cannot be written ({error.strerror}); name another place with --config"
        ) from None


def prepare_cluster(decided: InitPlan, wish: InitRequest, environment: Mapping[str, str]) -> Sequence[str]:
    """Prepare the namespace and the search attributes on the cluster; return what was done, in sentences.

    Raises ``TemporalUnavailable`` with what an administrator has to do where this user may not.
    """
    settings = load(decided.file, environment, wish.overrides).settings
    return asyncio.run(prepare(endpoint_of(settings), wish.retention))


def _temporal(surveyed: Survey, older: Mapping[str, object]) -> Mapping[str, object]:
    written = older.get("temporal", {})
    before = dict(written) if isinstance(written, dict) else {}
    temporal = surveyed.settings.temporal
    if not temporal.address:
        return before
    place = {"address": temporal.address, "namespace": temporal.namespace}
    return {**before, **place, **({"tls": True} if temporal.tls else {})}


def _write(file: Path, text: str) -> Path | None:
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as new:
        new.write(text)
        new.flush()
        os.fsync(new.fileno())
    try:
        backup = _back_up(file) if file.exists() else None
        fresh.replace(file)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    return backup


def _back_up(file: Path) -> Path:
    """Copy the file to a name beside it that is still free."""
    names = (file.with_name(f"{file.name}.bak{number or ''}") for number in count())
    backup = next(name for name in names if not os.path.lexists(name))
    shutil.copyfile(file, backup)
    backup.chmod(0o600)  # readable by the owner only, because it may hold keys
    return backup
