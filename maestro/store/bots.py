"""Our accounts on platforms, as rows."""

import json
from collections.abc import Mapping, Sequence

from sqlmodel import col, select

from maestro.domain.bots.bot import BotInstance
from maestro.domain.errors import Conflict, NotFound
from maestro.domain.llm.accounts import KeptKey
from maestro.store.audit import Audit
from maestro.store.repository import Repository

WEB = "web"


class Bots(Repository):
    """All bots; the web connector, which has a row only for its agent, is none of them."""

    def all(self) -> Sequence[BotInstance]:
        """Return them by platform and account."""
        order = (col(BotInstance.platform), col(BotInstance.account))
        return self._session.exec(select(BotInstance).where(BotInstance.platform != WEB).order_by(*order)).all()

    def find(self, platform: str, account: str) -> BotInstance | None:
        """Return a bot, None when there is none of that name."""
        return self._session.get(BotInstance, (platform, account)) if platform != WEB else None

    def get(self, platform: str, account: str) -> BotInstance:
        """Return a bot; raises ``NotFound``."""
        found = self.find(platform, account)
        if found is None:
            raise NotFound(f"there is no connector {platform}/{account}")
        return found

    def add(self, bot: BotInstance, actor: str) -> BotInstance:
        """Keep a new bot; raises ``Conflict`` when its name is taken."""
        if self.find(bot.platform, bot.account) is not None:
            raise Conflict(f"there is a connector {bot.place} already; change that one, or choose another account")
        return self.put(bot, actor, "connector.add")

    def put(self, bot: BotInstance, actor: str, action: str) -> BotInstance:
        """Write a bot as it is now."""
        bot.changed_at = self._now
        self._session.add(bot)
        self._session.flush()
        Audit(self._link, self._now).add(actor, action, bot.place)
        return bot

    def remove(self, bot: BotInstance, actor: str) -> None:
        """Remove a bot, with its secrets; raises ``Conflict`` for one of the configuration."""
        if bot.configured:
            raise Conflict(f"{bot.place} stands in the configuration; take it out there, or disable it")
        self._session.delete(bot)
        self._session.flush()
        Audit(self._link, self._now).add(actor, "connector.remove", bot.place)

    def keep_configured(self, named: Mapping[tuple[str, str], int | None]) -> None:
        """Have a row for each bot of the configuration, with its agent, and none for one that it no longer names.

        A row of the same name that was added otherwise becomes the configuration's, and forgets its secrets.
        """
        for bot in self.all():
            if bot.configured and (bot.platform, bot.account) not in named:
                self._session.delete(bot)
        for (platform, account), agent_id in named.items():
            bot = self.find(platform, account) or BotInstance(platform=platform, account=account)
            if not bot.configured or bot.agent_id != agent_id:
                bot.secrets, bot.endings, bot.options = "{}", "{}", "{}"
                bot.agent_id, bot.configured, bot.changed_at = agent_id, True, self._now
                self._session.add(bot)
        self._session.flush()


def set_secrets(bot: BotInstance, kept: Mapping[str, KeptKey]) -> None:
    """Write what is kept of some secrets into a bot; those that are empty are taken away, others stay."""
    secrets, endings = dict(bot.kept_secrets), dict(bot.last_characters)
    for name, key in kept.items():
        secrets.pop(name, None)
        endings.pop(name, None)
        if key.secret:
            secrets[name] = key.secret
        if key.last4:
            endings[name] = key.last4
    bot.secrets, bot.endings = json.dumps(secrets, sort_keys=True), json.dumps(endings, sort_keys=True)
