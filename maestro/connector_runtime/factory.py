"""Creates the connectors of bots, from the configuration file and from the rows of bots that operators added."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import SecretStr

from connectors.base import Connector, ConnectorContext
from connectors.options import Instance
from connectors.platforms import platform
from maestro.domain.connectors import BotInstance
from maestro.domain.errors import ConfigurationError, InvalidEdit
from maestro.domain.fields import read
from maestro.installation.keys import SecretKeys
from maestro.settings import Settings
from maestro.settings.connectors import BotSettings


@dataclass(frozen=True)
class ConnectorFactory:
    """A factory for the connectors of bots; a bot's configuration takes precedence over its row."""

    keys: SecretKeys
    configured: Mapping[tuple[str, str], BotSettings]

    @classmethod
    def of(cls, settings: Settings, keys: SecretKeys) -> "ConnectorFactory":
        """Return the factory of a process, with the bots in its settings."""
        return cls(keys, {(bot.platform, bot.account): bot for bot in settings.connectors.enabled_bots()})

    def instance(self, row: BotInstance) -> Instance:
        """Return the options and the decrypted secrets of a bot.

        Raises ``ConfigurationError`` for a bot that cannot be connected; the message names the fix and quotes no value.
        """
        secrets, options = self._secrets_and_options(row)
        entry = platform(row.platform)
        unknown = sorted(set(secrets) - set(entry.secrets))
        if unknown:
            known = ", ".join(entry.secrets)
            raise ConfigurationError(f"{row.name}: unknown secret {', '.join(unknown)}; the known ones are {known}")
        try:
            checked = read(entry.options, options)
        except InvalidEdit as error:
            raise ConfigurationError(f"{row.name}: {error}") from None
        first = next((secrets[name] for name in entry.secrets if name in secrets), SecretStr(""))
        token = first.get_secret_value()
        digest = self.keys.fingerprint(row.platform, token) if token else ""
        instance = Instance(row.account, secrets, checked, digest)
        problem = entry.complete(instance)
        if problem is not None:
            raise ConfigurationError(f"{row.name}: {problem}")
        return instance

    def connect(self, row: BotInstance, instance: Instance, context: ConnectorContext) -> Connector:
        """Create the connector of a bot; the first call for a platform imports its library, which takes a moment."""
        return platform(row.platform).connect(instance, context)

    def settings_digest(self, row: BotInstance) -> str:
        """Return a fingerprint that changes when the bot has to be reconnected; it reveals no secret."""
        try:
            instance = self.instance(row)
        except ConfigurationError as error:
            return str(error)
        secrets = [f"{name}={value.get_secret_value()}" for name, value in sorted(instance.secrets.items())]
        return self.keys.fingerprint(instance.options.model_dump_json(), *secrets)

    def _secrets_and_options(self, row: BotInstance) -> tuple[Mapping[str, SecretStr], Mapping[str, object]]:
        if not row.configured:
            return {name: self.keys.reveal(text) for name, text in row.stored_secrets.items()}, row.option_values
        bot = self.configured.get((row.platform, row.account))
        if bot is None:
            raise ConfigurationError(
                f"{row.name} belongs to a configuration file that this process did not read; start it with that file"
            )
        return bot.secrets, bot.options
