"""``maestro init``: finds accounts on this machine and writes ``maestro.json``."""

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
from maestro.domain.settings.entries import DEFAULT_CLI_MODEL, DEFAULT_MODELS, AccountSettings
from maestro.llm.cli_runner import CLAUDE
from maestro.llm.translation import KeyStatus, check_key
from maestro.settings import Survey, load, survey_settings
from maestro.settings.accounts import convert_account
from maestro.settings.addresses import temporal_endpoint
from maestro.settings.environment import CONFIG_FILE, DEFAULT_FILE, PROVIDER_VARIABLES, account_variable, found_accounts
from temporal.namespace import prepare_namespace

OLLAMA = "ollama"
CLAUDE_PRIORITY = 10
"""The priority of the ``claude`` subscription: it is called before all accounts that charge for each call."""

Document = Mapping[str, object]

CONDUCTOR = {"slug": "conductor", "role": "conductor"}


@dataclass(frozen=True)
class Discovery:
    """The model accounts found on this machine, as entries for ``llm.accounts``, and a sentence about each."""

    accounts: tuple[Mapping[str, object], ...] = ()
    sentences: tuple[str, ...] = ()

    def __add__(self, other: "Discovery") -> "Discovery":
        return Discovery(self.accounts + other.accounts, self.sentences + other.sentences)


async def discover_accounts(environment: Mapping[str, str]) -> Discovery:
    """Find accounts of model providers on this machine; only a local Ollama is contacted, and no key is copied.

    Raises ``ConfigurationError`` for an invalid value of a provider's variable.
    """
    found = found_accounts(environment)
    keys = [_discover_key(account) for account in found if account.provider != OLLAMA]
    ollama = await _discover_ollama(next((account for account in found if account.provider == OLLAMA), None))
    return sum([*keys, ollama, _discover_claude(environment)], Discovery())


def choose_model(installed: Sequence[str]) -> str | None:
    """Return the Ollama model to use: the default model if installed, else the first that is not for embeddings."""
    default = DEFAULT_MODELS[OLLAMA]
    if default in installed:
        return default
    return next((name for name in installed if "embed" not in name.lower()), None)


def _discover_key(account: AccountSettings) -> Discovery:
    variable = account_variable(account)
    entry = {
        "name": account.name,
        "provider": account.provider,
        "model": account.model,
        "apiKey": f"env:{variable}",
        "priority": account.priority,
    }
    return Discovery((entry,), (f"{variable} is set: account {account.name} with {account.model}",))


async def _discover_ollama(named: AccountSettings | None) -> Discovery:
    """Look for an Ollama server at the address in the environment, else at the default address."""
    account = named or AccountSettings(name=OLLAMA, provider=OLLAMA, base_url="http://127.0.0.1:11434", priority=200)
    result = await check_key(replace(convert_account(account), model=""), seconds=1.5)
    if result.status is not KeyStatus.ACCEPTED:
        variable = PROVIDER_VARIABLES[OLLAMA]
        sentence = f"{variable} is set, but no Ollama answers at {account.base_url} ({result.detail}): not used"
        return Discovery(sentences=(sentence,) if named else ())
    model = choose_model(result.models)
    if model is None:
        pull = f"`ollama pull {DEFAULT_MODELS[OLLAMA]}` installs one"
        return Discovery(sentences=(f"Ollama answers at {account.base_url}, but has no chat model; {pull}",))
    entry = {
        "name": account.name,
        "provider": OLLAMA,
        "model": model,
        "baseUrl": account.base_url,
        "priority": account.priority,
    }
    return Discovery((entry,), (f"Ollama answers at {account.base_url}: account {account.name} with {model}",))


def _discover_claude(environment: Mapping[str, str]) -> Discovery:
    """Return the ``claude`` command as an account if a user is logged in; the command is not run."""
    command = shutil.which(CLAUDE, path=environment.get("PATH", ""))
    if command is None:
        return Discovery()
    if not has_login_files(environment):
        fix = f"run `{CLAUDE}` once to log in and `maestro init --force` to use it"
        return Discovery(sentences=(f"the command {CLAUDE} is at {command}, but no user is logged in; {fix}",))
    account = AccountSettings(
        provider="anthropic", name=CLAUDE, type="cli", model=DEFAULT_CLI_MODEL, priority=CLAUDE_PRIORITY
    )
    entry = account.model_dump(include={"name", "type", "model", "priority"})
    return Discovery((entry,), (f"the command {CLAUDE} is at {command}: account {CLAUDE} with {account.model}",))


def has_login_files(environment: Mapping[str, str]) -> bool:
    """Tell whether a login of ``claude`` exists, from its token or its files; no credentials are read."""
    home = Path(environment.get("HOME") or "~").expanduser()
    own = environment.get("CLAUDE_CONFIG_DIR", "")
    folder, state = (Path(own), Path(own) / ".claude.json") if own else (home / ".claude", home / ".claude.json")
    if environment.get("CLAUDE_CODE_OAUTH_TOKEN") or (folder / ".credentials.json").exists():
        return True
    try:
        return '"oauthAccount"' in state.read_text(encoding="utf-8", errors="replace")
    except OSError:  # the file of the login does not exist, or this user may not read it
        return False


class FileAction(StrEnum):
    """The action of ``maestro init`` on the configuration file."""

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
    """The plan of ``maestro init``; ``address`` is the Temporal cluster to prepare, empty for none."""

    file: Path
    action: FileAction
    document: Document
    discovery: Discovery
    address: str


def plan_init(request: InitRequest, environment: Mapping[str, str]) -> InitPlan:
    """Examine the machine and plan the new configuration file.

    Raises ``ConfigurationError`` if an existing file would be replaced, or is invalid, without ``--force``.
    """
    # Unlike at a start of Maestro, the file of --config need not exist.
    file = request.file or Path(environment.get(CONFIG_FILE) or DEFAULT_FILE)
    present = os.path.lexists(file)
    survey = survey_settings(file if present else None, environment, request.overrides)
    if survey.problems and present and request.force:
        # With --force the old file is replaced, so its problems do not matter.
        survey = survey_settings(None, environment, request.overrides)
    if survey.problems:
        raise ConfigurationError("; ".join(survey.problems))
    discovery = asyncio.run(discover_accounts(environment))
    document = compose_document(survey, discovery, request.overrides)
    address = survey.settings.temporal.address
    if not address and request.overrides.get("temporal.namespace") is not None:
        raise ConfigurationError("--temporal-namespace needs your own Temporal server: add --temporal-address")
    named = (
        request.overrides.get("temporal.address") is not None or request.overrides.get("temporal.namespace") is not None
    )
    action = decide_action(present, survey.written == document, request.force, bool(address) and not named)
    if action is None:
        raise ConfigurationError(
            f"{file} already exists and was not changed; edit it, or add --force to replace it (a copy of the old file "
            "stays beside it)"
        )
    return InitPlan(file, action, document, discovery, address)


def decide_action(present: bool, same: bool, force: bool, only_prepare: bool) -> FileAction | None:
    """Return the action on the configuration file, None if it is not allowed.

    An existing file is replaced only with ``--force``. It stays if its content would not change, or if only the
    Temporal cluster is to be prepared.
    """
    if not present:
        return FileAction.WRITTEN
    if same:
        return FileAction.UNCHANGED
    if force:
        return FileAction.REPLACED
    return FileAction.KEPT if only_prepare else None


def compose_document(survey: Survey, discovery: Discovery, overrides: Mapping[str, object]) -> Document:
    """Return the content of the new file, with the data folder and Temporal cluster of the old file or the options."""
    data_dir = overrides.get("dataDir") or survey.written.get("dataDir")
    written = survey.written.get("temporal", {})
    temporal = dict(written) if isinstance(written, dict) else {}
    settings = survey.settings.temporal
    if settings.address:
        tls = {"tls": True} if settings.tls else {}
        temporal |= {"address": settings.address, "namespace": settings.namespace, **tls}
    return {
        **({"dataDir": str(data_dir)} if data_dir else {}),
        **({"temporal": temporal} if temporal else {}),
        "agents": [CONDUCTOR],
        "llm": {"accounts": [dict(entry) for entry in discovery.accounts]},
    }


def write_plan(plan: InitPlan) -> Path | None:
    """Write the planned file, readable by its owner only; return the path of the old file's backup, or None."""
    if plan.action in (FileAction.KEPT, FileAction.UNCHANGED):
        return None
    try:
        return write_config(plan.file.resolve(), json.dumps(plan.document, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigurationError(
            f"{plan.file} cannot be written ({error.strerror}); name another place with --config"
        ) from None


def prepare_cluster(plan: InitPlan, request: InitRequest, environment: Mapping[str, str]) -> Sequence[str]:
    """Prepare the namespace and the search attributes on the Temporal cluster; return a sentence for each change.

    Raises ``TemporalUnavailable`` with the commands for an administrator if this user has no permission.
    """
    settings = load(plan.file, environment, request.overrides).settings
    return asyncio.run(prepare_namespace(temporal_endpoint(settings), request.retention))


def write_config(file: Path, text: str) -> Path | None:
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
    """Copy the file to an unused name beside it, and return the copy's path."""
    names = (file.with_name(f"{file.name}.bak{number or ''}") for number in count())
    backup = next(name for name in names if not os.path.lexists(name))
    shutil.copyfile(file, backup)
    backup.chmod(0o600)  # Only its owner may read the backup, because the backup may contain keys.
    return backup
