"""Whether a request fits into a model's window: whoever stands in may have a smaller one than it was made for."""

from collections.abc import Callable
from functools import cached_property

from maestro.domain.llm.accounts import Choice
from maestro.domain.llm.models import estimate_input, reserve
from maestro.domain.llm.prompts import LLMRequest

WindowOf = Callable[[str], int]
"""The tokens of the window of a model given as ``provider/model``."""

ANSWER_SHARE = 4
"""Of a window's reserve the answer gets at least this part; the rest may be taken by tools, which no prompt counts."""


MARGIN = 500
"""Tokens that are left over for what providers add around turns and tools."""


class Fit:
    """Says of everybody who may be asked whether one request fits; what it takes is estimated once, when it matters."""

    def __init__(self, request: LLMRequest, window: WindowOf) -> None:
        self._request = request
        self._window = window

    def __call__(self, choice: Choice) -> bool:
        """Say whether the request and an answer go into the window of the model that would be asked."""
        window = self._window(f"{choice.account.provider}/{choice.model}")
        return self._tokens + _answer(self._request, window) <= window

    @cached_property
    def _tokens(self) -> int:
        return estimate_input(self._request)


def room(request: LLMRequest, window: int) -> int:
    """Return the tokens that may still be added to a request, given the window of the model that is asked."""
    return window - estimate_input(request) - _answer(request, window) - MARGIN


def _answer(request: LLMRequest, window: int) -> int:
    return min(request.max_output_tokens, reserve(window) // ANSWER_SHARE)
