"""The least of a connector: it receives nothing and its platform takes everything."""

from connectors.base import Capabilities, Idempotency, LengthUnit
from maestro.domain.messages import Address, OutgoingMessage, Receipt


class Bot:
    """One account of a platform."""

    capabilities = Capabilities(3900, LengthUnit.CODE_POINTS, 0.01, Idempotency.RECONCILE)

    def __init__(self, platform: str, account: str = "default", token_digest: str = "") -> None:
        self.platform = platform
        self.account = account
        self.token_digest = token_digest
        self.typed: list[Address] = []

    async def run(self) -> None:
        """Receive nothing."""

    async def send(self, message: OutgoingMessage) -> Receipt:
        """Take everything."""
        return Receipt(platform_message_id=str(message.id))

    async def typing(self, address: Address) -> None:
        """Note where."""
        self.typed.append(address)
