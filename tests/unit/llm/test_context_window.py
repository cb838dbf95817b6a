"""How many tokens a prompt may count on, by model (decision 4)."""

import pytest

from maestro.domain.models import FALLBACK_WINDOW
from maestro.llm.model_map import context_window


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("anthropic/claude-sonnet-4-6", 200_000),
        ("mistral/mistral-large-latest", 0),
        ("nobody/knows-this", FALLBACK_WINDOW),
        ("ollama/llama3.1", FALLBACK_WINDOW),
    ],
)
def test_our_table_comes_first_then_the_librarys_then_a_small_window(model: str, tokens: int) -> None:
    if tokens:
        assert context_window(model) == tokens
    else:
        assert context_window(model) > FALLBACK_WINDOW
