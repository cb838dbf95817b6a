"""Secrets in texts that are no posts."""

import pytest

from maestro.domain.context.history import redact_messages
from maestro.domain.llm.prompts import PromptMessage, Role, ToolCall
from maestro.domain.redaction import REDACTED, ScanRules, build_redactor, keep_text, redact_value
from tests.support.scanning import SECRET, Marker, without


def test_a_secret_gives_way_to_a_mark_and_no_note_is_added() -> None:
    redact = build_redactor(Marker(), ScanRules())
    assert redact(f"a {SECRET} and {SECRET}.") == f"a {REDACTED} and {REDACTED}."
    assert redact("nothing") == "nothing"


def test_what_is_switched_off_is_not_asked() -> None:
    assert build_redactor(Marker(), ScanRules(enabled=False)) is keep_text


@pytest.mark.parametrize(("mode", "kept"), [("open", f"{REDACTED} and the rest"), ("closed", REDACTED)])
def test_a_text_that_could_not_be_scanned_is_kept_or_not_as_fail_mode_says(mode: str, kept: str) -> None:
    rules = ScanRules(fail_mode="closed" if mode == "closed" else "open")
    assert build_redactor(Marker(error="too long"), rules)(f"{SECRET} and the rest") == kept


def test_the_name_of_a_value_may_be_what_tells_that_it_is_a_secret() -> None:
    def password(text: str) -> str:
        return text.replace("password: plain", f"password: {REDACTED}")

    assert redact_value(password, "password", "plain") == REDACTED
    assert redact_value(password, "colour", "plain") == "plain"
    assert redact_value(lambda text: text.replace("odd: x", REDACTED), "odd", "x") == "x", "its name is not a value"


def test_turns_that_change_repeat_no_stored_message_any_more() -> None:
    call = ToolCall(id="1", name="search", arguments=f'{{"q": "{SECRET}"}}')
    system = PromptMessage(role=Role.SYSTEM, content=f"You are. {SECRET}", stable=8)
    said = PromptMessage(role=Role.USER, content="hello", message_id=1)
    told = PromptMessage(role=Role.USER, content=f"my key {SECRET}", message_id=2)
    asked = PromptMessage(role=Role.ASSISTANT, content="", tool_calls=(call,), message_id=3)
    first, second, third, fourth = redact_messages((system, said, told, asked), without)
    assert (first.content, first.stable) == (f"You are. {REDACTED}", 8)
    assert second is said
    assert (third.content, third.message_id) == (f"my key {REDACTED}", None)
    assert (SECRET in fourth.tool_calls[0].arguments, fourth.message_id) == (False, None)
    assert redact_messages((system.model_copy(update={"stable": 20}),), without)[0].stable == 0
