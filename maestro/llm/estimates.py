"""What a request is expected to cost, before its answer says."""

from collections.abc import Callable

from maestro.domain.llm.accounts import AccountType, Choice
from maestro.domain.llm.calls import CallEstimate
from maestro.domain.llm.models import Price, estimate_input
from maestro.domain.llm.prompts import LLMRequest
from maestro.llm.protocols import Directory

PriceOf = Callable[[str], Price | None]
"""The list price of a model given as ``provider/model``, None when nobody knows it."""

SUBSCRIPTION = Price(0, 0)
"""What the tokens of a subscription cost: it is paid whether they are used or not."""


class Estimates:
    """Estimates by list prices."""

    def __init__(self, directory: Directory, price: PriceOf) -> None:
        self._directory = directory
        self._price = price

    def least(self, request: LLMRequest) -> CallEstimate:
        """Return what a request to a chosen account costs at least should nobody ever hear of its answer: its input."""
        account = self._directory.find(request.account)
        provider = account.provider if account is not None else ""
        price = self._price_at(account.type, f"{provider}/{request.model}") if account is not None else None
        tokens = estimate_input(request)
        cost = price.cost(tokens, 0) if price is not None else None
        return CallEstimate(provider, request.model, tokens, cost, request.account)

    def most(self, choice: Choice, input_tokens: int, output_tokens: int) -> float | None:
        """Return the US dollars that a call may cost with the longest answer, None when the price is unknown.

        Providers may charge more for a prompt that they keep than for one they only read.
        """
        price = self._price_at(choice.account.type, f"{choice.account.provider}/{choice.model}")
        return price.cost(input_tokens, output_tokens, cache_written=input_tokens) if price is not None else None

    def _price_at(self, kind: AccountType, model: str) -> Price | None:
        return SUBSCRIPTION if kind is AccountType.CLI else self._price(model)
