"""List, show, add, enable, disable and remove accounts at model providers.

Accounts come from llm.accounts of the configuration, from provider keys in the environment, or from `add`. A running
Maestro applies a change from its next model call on. You enter a key at a hidden prompt, or name its environment
variable. The key is stored encrypted, and only its last four characters are shown later.
"""

import sys
from typing import Annotated

import typer
from pydantic import SecretStr

from maestro.cli.framework.commands import Fields, InputOptions, SecretRef, build_input, read_given_secret, read_secret
from maestro.cli.framework.operations import ACTOR, OperationCommands
from maestro.cli.framework.output import Columns, Portrait, Result, local_time_text
from maestro.domain.llm.accounts import (
    AccountChange,
    AccountSource,
    AccountState,
    AccountStatus,
    AccountType,
    AccountView,
    NewAccount,
)
from maestro.installation.data_folder import encryption
from maestro.operations.accounts import AccountOperations
from maestro.settings.accounts import account_columns

NOTHING = (
    "There are no accounts: the built-in demo model answers. Add one with `maestro accounts add`, or set a provider's "
    "key in the environment."
)


def _state_of(account: AccountView) -> str:
    limited = account.state is AccountState.LIMITED
    return f"limited until {local_time_text(account.rate_limited_until)}" if limited else account.state


DERIVED = {
    "spent": lambda account: f"{account.spent_usd:.4f} USD",
    "key": lambda account: account.reference or (f"...{account.last4}" if account.last4 else ""),
    "from": lambda account: "added" if account.source is AccountSource.API else account.source,
}
COLUMNS = Columns("name provider model state priority calls spent key from last_error", {"state": _state_of, **DERIVED})
PORTRAIT = Portrait(
    lambda account: f"{account.name}  {_state_of(account)}",
    hide="name spent_usd source status state last4 reference rate_limited_until",
    lines_of={
        **DERIVED,
        "limits": lambda account: [
            f"{limit.model or 'every model'} until {local_time_text(limit.until)}" for limit in account.limits
        ],
    },
)

AccountName = Annotated[str, "NAME: The name of the account, as `maestro accounts list` shows it."]
KeyEnv = Annotated[str | None, "--key-env NAME: Read the key from this environment variable once, and store it."]

app = OperationCommands(
    __doc__,
    lambda at: AccountOperations(at.store, encryption(at.loaded.settings), account_columns),
    AccountName,
    "name",
)
app.list("List the accounts in the order in which calls try them.", COLUMNS, NOTHING)
app.show("Show an account: its limits, its spend and its last error.", PORTRAIT)


@app.operation()
def add(
    accounts: AccountOperations,
    name: Annotated[str, "NAME: A name of your choice, unique."],
    options: Annotated[Fields, InputOptions(NewAccount, leave_out=["name", "api_key"], spelling={"models": "--also"})],
    key_env: KeyEnv = None,
    key_ref: SecretRef = None,
) -> Result:
    """Add an account; without --key-env or --key-ref the command asks for the key."""
    new = build_input(NewAccount, name=name, **options)
    key = read_given_secret("key", key_env, key_ref)
    if key is None:
        key = _ask_key() if new.type is AccountType.API_KEY and new.provider != "ollama" else ""
    account = accounts.add(new.model_copy(update={"api_key": SecretStr(key)}), ACTOR)
    return account, f"{account.name} is used for {account.provider}/{account.model} from the next call on"


@app.operation()
def enable(
    accounts: AccountOperations,
    name: AccountName,
    new_key: Annotated[bool, "--new-key: Ask for a new key before enabling."] = False,
    key_env: KeyEnv = None,
) -> Result:
    """Enable an account again, optionally with a new key; its cool-downs end."""
    key = read_secret(key_env) if key_env is not None else _ask_key() if new_key else None
    change = AccountChange(status=AccountStatus.ACTIVE, api_key=None if key is None else SecretStr(key))
    account = accounts.change(name, change, ACTOR)
    return account, f"{account.name} is used again"


app.switch(
    "disable",
    "Stop using an account until it is enabled; calls under way go on.",
    " is not used any more",
    AccountChange(status=AccountStatus.DISABLED),
)
app.remove("Remove an account that was added here or on the API, with its key.")


def _ask_key() -> str:
    """Return the key typed at a hidden prompt, or the first line of standard input if that is a pipe."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    return str(typer.prompt("Key (empty for none)", hide_input=True, default="", show_default=False, err=True))
