"""What is known about models in all, by the table inside litellm too (docs/decisions.md: tokens)."""

import subprocess
import sys

import pytest

from maestro.domain.llm.models import FALLBACK_WINDOW
from maestro.domain.llm.prompts import Usage
from maestro.domain.settings.llm import ModelSettings
from maestro.llm.accounts import build_model_table, litellm_model_facts


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("anthropic/claude-sonnet-4-6", 200_000),
        ("gpt-4", 8_192),
        ("openai/gpt-4-turbo", 128_000),
        ("nobody/knows-this", FALLBACK_WINDOW),
        ("ollama/llama3.1", FALLBACK_WINDOW),
    ],
)
def test_windows(model: str, tokens: int) -> None:
    assert build_model_table().context_window(model) == tokens


def test_the_library_knows_what_we_do_not() -> None:
    assert build_model_table().context_window("mistral/mistral-large-latest") > 30_000
    known = build_model_table().find_price("groq/llama-3.3-70b-versatile")
    assert known is not None
    assert 0 < known.input_usd < known.output_usd < 10


def test_a_price_of_nothing_is_an_unknown_price() -> None:
    assert litellm_model_facts("gemini/gemini-exp-1206").window
    assert build_model_table().find_price("gemini/gemini-exp-1206") is None
    assert build_model_table().find_price("ollama/llama3.1") is None
    assert build_model_table().find_price("nobody/knows-this") is None


def test_what_is_paid_otherwise_has_no_price_by_the_token() -> None:
    assert build_model_table().find_price("openai/whisper-1") is None


def test_the_configured_figures_win() -> None:
    table = build_model_table(
        [ModelSettings(name="llama3.1", window=32_768), ModelSettings(name="gpt-4o", input_usd=1.0, output_usd=2.0)]
    )
    assert table.context_window("ollama/llama3.1") == 32_768
    assert table.find_price("ollama/llama3.1") is None
    assert table.context_window("openai/gpt-4o") == 128_000
    assert table.compute_cost("openai/gpt-4o", Usage(input_tokens=1_000_000, output_tokens=500_000)) == 2.0


def test_the_library_is_not_imported_for_it() -> None:
    script = (
        "import sys\nfrom maestro.llm.accounts import build_model_table\n"
        "print(build_model_table().find_price('groq/llama-3.3-70b-versatile') is not None, 'litellm' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "True False\n"
