"""The transport to the models: the configured accounts, those found in the environment, or the demo model."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from maestro.domain.prompts import ImageRef
from maestro.llm.accounts import Account
from maestro.llm.demo import DEMO, DemoClient
from maestro.llm.litellm_client import LiteLLMClient
from maestro.llm.protocols import LLMClient
from maestro.settings import AccountSettings, Settings, is_loopback
from maestro.store.files import Files


@dataclass(frozen=True)
class Models:
    """Who answers: the client, the model of its first account, and a sentence for people (decision 23)."""

    transport: LLMClient
    default_model: str
    demo: bool
    announcement: str
    close: Callable[[], Awaitable[None]]


def build_models(settings: Settings, found: tuple[AccountSettings, ...], files: Files) -> Models:
    """Choose the transport; accounts from the environment count only when none is configured."""
    real = real_accounts(settings, found)
    if not real:
        return Models(
            DemoClient(loopback=is_loopback(settings.web.host)),
            default_model=DEMO,
            demo=True,
            announcement="No model account found: the built-in demo model answers. "
            "Set ANTHROPIC_API_KEY or llm.accounts in maestro.json and restart to talk to a real one.",
            close=_nothing,
        )

    def load_image(image: ImageRef) -> bytes:
        return files.read(image.digest)

    client = LiteLLMClient([account_of(account) for account in real], load_image)
    client.warm_up()
    first = min(real, key=lambda account: account.priority)
    source = "llm.accounts" if settings.llm.accounts else "a key found in the environment; calls to it are paid"
    return Models(
        client,
        default_model=f"{first.provider}/{first.model}",
        demo=False,
        announcement=f"Answers come from {first.provider}/{first.model} ({source}).",
        close=client.close,
    )


def real_accounts(settings: Settings, found: tuple[AccountSettings, ...]) -> list[AccountSettings]:
    """Return the accounts that a provider answers for; without any, the demo model answers (decision 23)."""
    return [account for account in settings.llm.accounts or found if account.provider != DEMO]


async def _nothing() -> None:
    """Close nothing: the demo model holds no connection."""


def account_of(settings: AccountSettings) -> Account:
    """Return the account that an entry of the configuration describes."""
    return Account(
        name=settings.name,
        provider=settings.provider,
        model=settings.model,
        api_key=settings.api_key,
        base_url=settings.base_url,
        priority=settings.priority,
    )
