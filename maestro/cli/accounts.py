"""``maestro accounts``: who answers for the agents, how each account does, and which keys are used."""

import sys
from typing import Annotated

import typer
from pydantic import SecretStr

from maestro.cli.account_texts import listing, portrait
from maestro.cli.opened import ACTOR, Opened, opened
from maestro.cli.operation_commands import OperationCommands
from maestro.cli.options import Given
from maestro.cli.output import write
from maestro.domain.errors import ConfigurationError
from maestro.domain.llm.account_views import REFERENCES, AccountChange, NewAccount
from maestro.domain.llm.accounts import AccountStatus, AccountType
from maestro.installation.keys import encryption
from maestro.operations.accounts import AccountOperations
from maestro.settings import read_environment
from maestro.settings.accounts import account_columns

KEYLESS = ("ollama",)
"""Providers that are usually asked without a key."""

HELP = """List, show, add, enable, disable and remove accounts at providers of models.

Accounts stand in llm.accounts of the configuration, are found by their keys in the environment, or are added here. All
of this works beside a running Maestro, from the next call on. A key is asked for without being shown, or read from a
variable; it is stored encrypted, and only its last four characters are ever seen again.
"""


def _reference(text: str | None) -> str | None:
    if text is not None and not text.startswith(REFERENCES):
        raise typer.BadParameter("expected env:NAME or file:PATH; a key is never given here")
    return text


AccountName = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the account, as `maestro accounts list` shows it.")
]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="A name of your choice, unique.")]
Provider = Annotated[str, typer.Option(help="anthropic, openai, gemini, openrouter, ollama, ...")]
Type = Annotated[
    AccountType, typer.Option("--type", help="api_key: over HTTP; cli: the command claude of a subscription.")
]
Model = Annotated[str, typer.Option(help="Its model; without it, the provider's default.")]
Models = Annotated[list[str] | None, typer.Option("--also", help="Another model it may be asked for; may be repeated.")]
BaseUrl = Annotated[str, typer.Option(help="Another server that speaks the provider's protocol.")]
HomeDir = Annotated[str, typer.Option(help="Of a cli account, the folder with its login.")]
Priority = Annotated[int, typer.Option(min=0, max=1000, help="The order of asking, lowest first.")]
Concurrency = Annotated[int, typer.Option(min=0, help="Calls at once; 0: as llm.concurrency says.")]
KeyEnv = Annotated[
    str | None, typer.Option("--key-env", metavar="NAME", help="Take the key from this environment variable, now.")
]
KeyRef = Annotated[
    str | None,
    typer.Option(
        metavar="REF", callback=_reference, help="Store env:NAME or file:PATH, which Maestro itself reads, and no key."
    ),
]
PerMinute = Annotated[int, typer.Option(min=0, help="What it may take a minute; 0: no limit of ours.")]


def _operations(at: Opened) -> AccountOperations:
    return AccountOperations(at.store, encryption(at.loaded.settings), account_columns)


app = OperationCommands(HELP, _operations, field="name", ref=AccountName)
app.list(
    "List the accounts, those asked first at the head.",
    AccountOperations.list,
    lambda page: listing(page.items),
    paged=False,
)
app.one("show", "Show an account: its limits, its spend and what went wrong last.", AccountOperations.show, portrait)


@app.command()
def add(
    given: Given,
    name: NewName,
    provider: Provider = "anthropic",
    account_type: Type = AccountType.API_KEY,
    model: Model = "",
    models: Models = None,
    base_url: BaseUrl = "",
    home_dir: HomeDir = "",
    priority: Priority = 20,
    requests_per_minute: PerMinute = 0,
    tokens_per_minute: PerMinute = 0,
    concurrency: Concurrency = 0,
    key_env: KeyEnv = None,
    key_ref: KeyRef = None,
) -> None:
    """Add an account; its key is asked for, or read from --key-env."""
    new = NewAccount(
        name=name,
        type=account_type,
        provider=provider,
        model=model,
        models=tuple(models or ()),
        base_url=base_url,
        home_dir=home_dir,
        priority=priority,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        concurrency=concurrency,
    )
    with opened(given) as at:
        account = _operations(at).add(_with_key(new, key_env, key_ref), ACTOR)
    said = f"{account.name} is asked for {account.provider}/{account.model} from the next call on"
    write(account, [said], given.as_json)


@app.command()
def enable(
    given: Given,
    name: AccountName,
    new_key: Annotated[bool, typer.Option("--new-key", help="Ask for another key first.")] = False,
    key_env: KeyEnv = None,
) -> None:
    """Let an account be asked again, with another key if need be; its limits end."""
    with opened(given) as at:
        key = SecretStr(_key(key_env)) if new_key or key_env else None
        account = _operations(at).change(name, AccountChange(status=AccountStatus.ACTIVE, api_key=key), ACTOR)
    write(account, [f"{account.name} is asked again"], given.as_json)


app.change(
    "disable",
    "Let an account be asked no more, until it is enabled; calls under way go on.",
    AccountOperations.change,
    AccountChange(status=AccountStatus.DISABLED),
    " is asked no more",
)
app.remove("Remove an account that was added here or on the API, with its key.", AccountOperations.remove)


def _with_key(new: NewAccount, variable: str | None, reference: str | None) -> NewAccount:
    """Add the key: a reference, or the key itself where one is usually needed."""
    if variable and reference:
        raise typer.BadParameter("give --key-env or --key-ref, not both")
    key = reference or ""
    if reference is None and (variable or (new.type is AccountType.API_KEY and new.provider not in KEYLESS)):
        key = _key(variable)
    return new.model_copy(update={"api_key": SecretStr(key)})


def _key(variable: str | None) -> str:
    """Return a key from a variable, from a person who types it unseen, or from the first line of a pipe."""
    if variable is not None:
        key = read_environment().get(variable, "").strip()
        if not key:
            raise ConfigurationError(f"the environment variable {variable} is not set; set it, or name another")
        return key
    if sys.stdin.isatty():
        return str(typer.prompt("Key (empty for none)", hide_input=True, default="", show_default=False, err=True))
    return sys.stdin.readline().strip()
