"""What ``maestro init`` finds on this machine: keys in the environment, a local Ollama, the command ``claude``."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from maestro.bootstrap.models import account_of
from maestro.llm.cli_runner import CLAUDE
from maestro.llm.key_check import KeyCheck, KeyStatus, check_key
from maestro.settings import (
    DEFAULT_CLI_MODEL,
    DEFAULT_MODELS,
    PROVIDER_VARIABLES,
    AccountSettings,
    found_accounts,
    variable_of,
)

OLLAMA = "ollama"
LOCAL_OLLAMA = "http://127.0.0.1:11434"
OLLAMA_SECONDS = 1.5
CLAUDE_PRIORITY = 10
"""Before every account that is paid by the call."""

Entry = Mapping[str, object]


@dataclass(frozen=True)
class Discovery:
    """The accounts as they are to stand in ``llm.accounts``, and a sentence about everything that was found."""

    accounts: tuple[Entry, ...] = ()
    sentences: tuple[str, ...] = ()

    def __add__(self, other: "Discovery") -> "Discovery":
        return Discovery(self.accounts + other.accounts, self.sentences + other.sentences)


async def discover(environment: Mapping[str, str]) -> Discovery:
    """Look around; nothing but a local Ollama is asked anything, and no key is copied.

    Raises ``ConfigurationError`` for a variable of a provider that cannot be what its name says.
    """
    found = found_accounts(environment)
    keys = [_by_key(account) for account in found if account.provider != OLLAMA]
    ollama = await _ollama(next((account for account in found if account.provider == OLLAMA), None))
    return sum([*keys, ollama, _claude(environment)], Discovery())


def choose_model(installed: Sequence[str]) -> str | None:
    """Return the installed model to talk to: our default if it is there, else the first that is not for embeddings."""
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
    """Ask the Ollama that the environment names, else the one that would be here."""
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
    """Take the command for an account where somebody has logged in; nothing is asked of it."""
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
    """Look for what a login leaves behind; the credentials themselves are not read."""
    home = Path(environment.get("HOME") or "~").expanduser()
    own = environment.get("CLAUDE_CONFIG_DIR", "")
    folder, state = (Path(own), Path(own) / ".claude.json") if own else (home / ".claude", home / ".claude.json")
    if environment.get("CLAUDE_CODE_OAUTH_TOKEN") or (folder / ".credentials.json").exists():
        return True
    try:
        return '"oauthAccount"' in state.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it is not there, or not for us
        return False
