"""The one estimator of tokens, against true counts."""

import time

import pytest

from maestro.domain.llm.models import IMAGE_TOKENS, MESSAGE_OVERHEAD, estimate_input, estimate_messages, estimate_tokens
from maestro.domain.llm.prompts import CallKey, ImageRef, LLMRequest, PromptMessage, Role, ToolCall, ToolSpec

# Measured once: the larger count of two tokenizers, OpenAI's cl100k and the one Anthropic has published.
MEASURED = {
    "the quick brown fox jumps over the lazy dog " * 10: 91,
    "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему. ": 58,
    "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。寒来暑往，秋收冬藏。": 45,
    "吾輩は猫である。名前はまだ無い。": 21,
    "안녕하세요. 오늘은 날씨가 정말 좋네요.": 29,
    "😀🎉🚀🔥💯✨": 15,
    '{"name": "value", "numbers": [1, 22, 333], "nested": {"a": true}}': 26,
    "Zm9vYmFyYmF6cXV4c2VjcmV0c2VjcmV0c2VjcmV0MTIzNDU2Nzg5MA==": 49,
}


@pytest.mark.parametrize("text", MEASURED)
def test_the_estimate_is_near_the_count_and_leans_high(text: str) -> None:
    assert MEASURED[text] * 0.8 <= estimate_tokens(text) <= MEASURED[text] * 2


def test_nothing_takes_nothing() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("a") == 1


def test_half_a_surrogate_pair_does_not_hurt() -> None:
    assert estimate_tokens("\ud83d") > 0


def test_more_text_never_takes_fewer_tokens() -> None:
    text = "Größe 42: «да» 漢字 🎉 {x}" * 3
    counts = [estimate_tokens(text[:end]) for end in range(len(text))]
    assert counts == sorted(counts)


def test_a_prompt_counts_its_messages_and_images() -> None:
    image = ImageRef(digest="d", content_type="image/png")
    message = PromptMessage(role=Role.USER, content="hello", images=(image, image))
    assert estimate_messages([message, message]) == 2 * (MESSAGE_OVERHEAD + estimate_tokens("hello") + 2 * IMAGE_TOKENS)
    assert estimate_messages([]) == 0


def test_a_prompt_counts_the_tools_that_were_asked_for_and_those_on_offer() -> None:
    arguments, schema = '{"query": "sunset"}', '{"type": "object"}'
    asked = PromptMessage(
        role=Role.ASSISTANT, content="", tool_calls=(ToolCall(id="call_1_0", name="search", arguments=arguments),)
    )
    request = LLMRequest(
        key=CallKey(job_id="job", number=2),
        platform="web",
        messages=(asked,),
        tools=(ToolSpec(name="search", description="Search.", parameters=schema),),
        max_output_tokens=1,
    )
    prompt = 2 * MESSAGE_OVERHEAD + estimate_tokens("search") + estimate_tokens(arguments)
    assert estimate_messages([asked]) == prompt
    on_offer = MESSAGE_OVERHEAD + estimate_tokens("search") + estimate_tokens("Search.") + estimate_tokens(schema)
    assert estimate_input(request) == prompt + on_offer


def test_a_long_text_is_read_quickly() -> None:
    text = "Größe 42: «да» 漢字 🎉 {x} and then some words. " * 7_000
    began = time.process_time()
    estimate_tokens(text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("around", ["{}", "of words: {}", "{} of words", "é {} é"])
def test_a_run_without_a_blank_takes_more_from_25_characters_on_wherever_it_stands(around: str) -> None:
    empty = estimate_tokens(around.format(""))
    assert estimate_tokens(around.format("x" * 24)) - empty in (6, 7)
    assert estimate_tokens(around.format("x" * 12 + " " + "x" * 12)) - empty in (6, 7)
    assert estimate_tokens(around.format("x" * 25)) - empty in (17, 18)
    assert estimate_tokens(around.format("aB+/=_-" * 4)) - empty >= 0.45 * 28
