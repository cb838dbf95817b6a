"""What goes wrong with a call of Telegram, told apart by what it means for whoever called."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from connectors.outcomes import (
    AccountRefused,
    AmbiguousSend,
    FetchFailure,
    NotDispatched,
    PermanentFetch,
    PermanentSend,
    RetryableFetch,
    RetryableSend,
    Scope,
    SendFailure,
)
from maestro.domain.errors import MaestroError, StoreBusy

REFUSED = (
    "Telegram refuses the bot's token. Ask @BotFather for it anew (/mybots, API Token) and set "
    "connectors.telegram.token or the bot's entry."
)
CHANNEL = (
    *("chat not found", "user not found", "peer_id_invalid", "chat_write_forbidden", "chat_restricted"),
    *("have no rights to send", "not enough rights", "need administrator rights"),
    *("group chat was deactivated", "group chat was upgraded", "chat_admin_required"),
)
"""What Telegram says of a chat that no message can reach; that a topic is closed is none of it."""
UNREADABLE = "can't parse"
"""What Telegram says of markup that it cannot read; the message is surely not sent."""
NOTHING_IN_IT = ("text is empty", "text must be non-empty")
"""What Telegram says of markup that has nothing in it, such as code without a line."""
UNCHANGED = "message is not modified"
NO_PICTURE = ("photo_invalid", "image_process_failed", "photo_save_file_invalid", "wrong type of the web page")
TOO_BIG = "file is too big"
NO_REACTION = "reaction"
MOST_SAID = 120
"""Characters of Telegram's own words that are told."""


class TelegramTrouble(MaestroError):
    """The base of what a call of Telegram can end with."""

    public = "Telegram did not do what it was asked."


class Unreachable(TelegramTrouble):
    """Telegram was surely not asked."""


class Unsure(TelegramTrouble):
    """Telegram may or may not have done it."""


class Busy(TelegramTrouble):
    """Telegram did nothing and asked to come back after ``after``."""

    def __init__(self, after: timedelta) -> None:
        super().__init__(f"Telegram asked to wait {after.total_seconds():g} s")
        self.after = after


class Moved(TelegramTrouble):
    """Telegram did nothing: the group goes on under the id ``to``."""

    def __init__(self, to: str) -> None:
        super().__init__("the group goes on under another id")
        self.to = to


class Denied(TelegramTrouble):
    """The token is not valid any more, or never was."""

    def __init__(self) -> None:
        super().__init__(REFUSED)


class Contested(TelegramTrouble):
    """Somebody else asks for the messages of this bot, or a webhook takes them."""


class Refused(TelegramTrouble):
    """Telegram said no, in its own words ``said``; ``forbidden`` where it is about who we are to this chat."""

    def __init__(self, said: str, *, forbidden: bool = False) -> None:
        self.said = said.lower()
        self.forbidden = forbidden
        # Of markup that it cannot read, Telegram quotes a part, which is what somebody wrote.
        told = "it cannot read the markup" if UNREADABLE in self.said else said[:MOST_SAID]
        super().__init__(f"Telegram says: {told}")

    def says(self, *words: str) -> bool:
        """Tell whether Telegram's words hold any of these."""
        return any(one in self.said for one in words)


@contextmanager
def before_sending() -> Iterator[None]:
    """Let trouble of the store be what it is before a message leaves: the message is surely not sent."""
    try:
        yield
    except StoreBusy as error:
        raise NotDispatched(str(error)) from None


def send_failure(trouble: TelegramTrouble) -> SendFailure:
    """Return what the trouble means for a message that was to be sent.

    An answer of 500 or more is in doubt like a cut connection: it may come from a gateway before Telegram's own
    servers, which may have the message by then, and there is no key by which they would know a second one.
    """
    if isinstance(trouble, Unreachable):
        return NotDispatched(str(trouble))
    if isinstance(trouble, Busy):
        return RetryableSend(str(trouble), trouble.after)
    if isinstance(trouble, Denied):
        return PermanentSend(str(trouble), Scope.ACCOUNT)
    if isinstance(trouble, Refused | Moved):
        return PermanentSend(str(trouble), _scope(trouble))
    return AmbiguousSend(str(trouble))


def fetch_failure(trouble: TelegramTrouble) -> FetchFailure:
    """Return what the trouble means for a file that was to be fetched."""
    if isinstance(trouble, Refused) and trouble.says(TOO_BIG):
        return PermanentFetch("the file is larger than 20 MB, and Telegram gives bots none that are")
    if isinstance(trouble, Refused | Denied):
        return PermanentFetch(str(trouble))
    return RetryableFetch(str(trouble), trouble.after if isinstance(trouble, Busy) else None)


def refused_account(trouble: MaestroError) -> AccountRefused | None:
    """Return what an operator is to be told when nobody else can help, None when this is no such trouble."""
    return AccountRefused(str(trouble)) if isinstance(trouble, Denied) else None


def _scope(trouble: Refused | Moved) -> Scope:
    """Return what is broken: a group that moves more than once within a call is one we cannot reach."""
    if isinstance(trouble, Moved):
        return Scope.CHANNEL
    return Scope.CHANNEL if trouble.forbidden or trouble.says(*CHANNEL) else Scope.MESSAGE
