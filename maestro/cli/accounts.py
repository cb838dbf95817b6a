"""``maestro accounts``: the accounts at providers of models, the state of each, and the keys that are used."""

import sys
from typing import Annotated

import typer
from pydantic import SecretStr

from maestro.cli.framework.inputs import Fields, InputOptions, made, reference_of, secret_in
from maestro.cli.framework.operations import ACTOR, OperationCommands, Reference
from maestro.cli.framework.output import Columns, Portrait, Result, moment
from maestro.domain.llm.account_views import AccountChange, AccountState, AccountView, NewAccount
from maestro.domain.llm.accounts import AccountSource, AccountStatus, AccountType
from maestro.installation.keys import encryption
from maestro.operations.accounts import AccountOperations
from maestro.settings.accounts import account_columns

KEYLESS = ("ollama",)
"""Providers that are usually asked without a key."""

HELP = """List, show, add, enable, disable and remove accounts at providers of models.

Accounts stand in llm.accounts of the configuration, are found by their keys in the environment, or are added here. All
of this works beside a running Maestro, from the next call on. A key is asked for without being shown, or read from a
variable; it is stored encrypted, and only its last four characters are ever seen again.
"""
NOTHING = (
    "There are no accounts: the built-in demo model answers. Add one with `maestro accounts add`, or set a provider's "
    "key in the environment."
)
ORIGINS = {
    AccountSource.CONFIGURATION: "configuration",
    AccountSource.ENVIRONMENT: "environment",
    AccountSource.API: "added",
}


def _state(account: AccountView) -> str:
    limited = account.state is AccountState.LIMITED
    return f"limited until {moment(account.rate_limited_until)}" if limited else account.state


DERIVED = {
    "spent": lambda account: f"{account.spent_usd:.4f} USD",
    "key": lambda account: account.reference or (f"...{account.last4}" if account.last4 else ""),
    "from": lambda account: ORIGINS[account.source],
}
COLUMNS = Columns("name provider model state priority calls spent key from last_error", {"state": _state, **DERIVED})
PORTRAIT = Portrait(
    lambda account: f"{account.name}  {_state(account)}",
    hide="name spent_usd source status state last4 reference rate_limited_until",
    lines_of={
        **DERIVED,
        "limits": lambda account: [
            f"{limit.model or 'every model'} until {moment(limit.until)}" for limit in account.limits
        ],
    },
)
OPTIONS = InputOptions(NewAccount, leave_out=["name", "api_key"], spelling={"models": "--also"})

AccountName = Annotated[str, "NAME: The name of the account, as `maestro accounts list` shows it."]
NewName = Annotated[str, "NAME: A name of your choice, unique."]
KeyEnv = Annotated[str | None, "--key-env NAME: Take the key from this environment variable, now."]
KeyRef = Annotated[
    str | None,
    typer.Option(
        metavar="REF",
        callback=reference_of("key"),
        help="Store env:NAME or file:PATH, which Maestro itself reads, and no key.",
    ),
]

app = OperationCommands(
    HELP,
    lambda at: AccountOperations(at.store, encryption(at.loaded.settings), account_columns),
    Reference("name", AccountName),
)
app.list("List the accounts, those asked first at the head.", COLUMNS, NOTHING)
app.show("Show an account: its limits, its spend and what went wrong last.", PORTRAIT)


@app.operation()
def add(
    accounts: AccountOperations,
    name: NewName,
    options: Annotated[Fields, OPTIONS],
    key_env: KeyEnv = None,
    key_ref: KeyRef = None,
) -> Result:
    """Add an account; its key is asked for, or read from --key-env."""
    new = made(NewAccount, name=name, **options)
    if key_env and key_ref:
        raise typer.BadParameter("give --key-env or --key-ref, not both")
    needs_key = new.type is AccountType.API_KEY and new.provider not in KEYLESS
    key = _read_key(key_env) if key_ref is None and (key_env or needs_key) else SecretStr(key_ref or "")
    account = accounts.add(new.model_copy(update={"api_key": key}), ACTOR)
    return account, f"{account.name} is asked for {account.provider}/{account.model} from the next call on"


@app.operation()
def enable(
    accounts: AccountOperations,
    name: AccountName,
    new_key: Annotated[bool, "--new-key: Ask for another key first."] = False,
    key_env: KeyEnv = None,
) -> Result:
    """Let an account be asked again, with another key if need be; its limits end."""
    key = _read_key(key_env) if new_key or key_env else None
    account = accounts.change(name, AccountChange(status=AccountStatus.ACTIVE, api_key=key), ACTOR)
    return account, f"{account.name} is asked again"


app.switch(
    "disable",
    "Let an account be asked no more, until it is enabled; calls under way go on.",
    " is asked no more",
    AccountChange(status=AccountStatus.DISABLED),
)
app.remove("Remove an account that was added here or on the API, with its key.")


def _read_key(variable: str | None) -> SecretStr:
    """Return a key from a variable, from a hidden prompt, or from the first line of a pipe."""
    if variable is not None:
        return SecretStr(secret_in(variable))
    if sys.stdin.isatty():
        question = "Key (empty for none)"
        return SecretStr(typer.prompt(question, hide_input=True, default="", show_default=False, err=True))
    return SecretStr(sys.stdin.readline().strip())
