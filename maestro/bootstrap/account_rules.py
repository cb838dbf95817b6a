"""The rules of ``llm.accounts`` of the configuration, for accounts that operators add."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from maestro.bootstrap.models import without_login
from maestro.domain.errors import ConfigurationError
from maestro.domain.llm.accounts import AccountType
from maestro.domain.llm.models import own_name
from maestro.settings import AccountSettings
from maestro.settings.problems import refuse, translate

APART = {"status", "api_key"}
"""What is not a column as it stands in an entry."""


def account_columns(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the columns of an account; raises ``ConfigurationError``, which names the key of the configuration."""
    try:
        entry = AccountSettings.model_validate({to_camel(name): value for name, value in fields.items()})
    except ValidationError as error:
        raise refuse(translate(error, (), {})) from None
    if without_login(entry.base_url) != entry.base_url:
        raise ConfigurationError(
            "baseUrl: a user and a password in it would be shown with the account; leave them out, or write "
            "the account into llm.accounts of the configuration"
        )
    models = " ".join(own_name(entry.provider, model) for model in entry.models)
    own = {"type": AccountType(entry.type), "model": own_name(entry.provider, entry.model), "models": models}
    return {**entry.model_dump(by_alias=False, exclude=APART), **own}
