"""The accounts at model providers, and which of them a call goes to."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pydantic import SecretStr

from maestro.domain.models import bare, provider_of


@dataclass(frozen=True, slots=True)
class Account:
    """One account at a provider.

    ``model`` is the one it answers with unless another of the same provider is asked for, ``base_url`` is empty for
    the provider's own address, and of several accounts the one with the lowest ``priority`` is asked.
    """

    name: str
    provider: str
    model: str
    api_key: SecretStr = field(default=SecretStr(""))
    base_url: str = ""
    priority: int = 20


def choose(accounts: Sequence[Account], wanted: str) -> Account | None:
    """Return the account to call, its ``model`` being the one to call; None when there is no account.

    ``wanted`` is ``provider/model``, a model's name or empty. An account of the wanted provider is preferred and
    calls the wanted model; failing that, any account answers with its own model (decision 10). The lowest priority
    wins, then the order given.
    """
    by_priority = sorted(accounts, key=lambda account: account.priority)
    fitting = [account for account in by_priority if account.provider == provider_of(wanted)]
    same_model = [account for account in by_priority if wanted and account.model == wanted]
    if fitting:
        return replace(fitting[0], model=bare(wanted))
    return next(iter([*same_model, *by_priority]), None)
