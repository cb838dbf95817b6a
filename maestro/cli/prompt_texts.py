"""What a model saw, in words for a terminal."""

from collections.abc import Iterator

from maestro.cli.job_texts import cost, moment
from maestro.cli.table import lines, plain
from maestro.domain.context.views import AnswerView, LayerView, SeenView, ToolCallView, TurnView
from maestro.domain.llm.prompts import Role

LAYER_COLUMNS = ("layer", "characters", "tokens", "note")


def prompt(seen: SeenView) -> Iterator[str]:
    """Show one attempt at one model call: what it was asked, layer by layer and word by word, and what it said."""
    yield f"{seen.job_id}  call {seen.id}  {seen.purpose} {seen.number}.{seen.attempt}  {seen.state}"
    for name, value in _facts(seen):
        if value:
            yield f"  {name:<11} {plain(value)}"
    if seen.layers:
        yield from ("", "Layers")
        yield from (f"  {line}" for line in lines(LAYER_COLUMNS, [_layer(layer) for layer in seen.layers]))
    for turn in seen.messages:
        yield from ("", _heading(turn))
        yield from _turn(turn)
    if seen.answer is not None:
        yield from ("", f"== answer, {seen.answer.output_tokens} tokens")
        yield from _text(seen.answer.text)
        yield from _calls(seen.answer.tool_calls)


def _facts(seen: SeenView) -> Iterator[tuple[str, str]]:
    answer = seen.answer
    yield "at", moment(seen.started_at)
    yield "error", seen.error
    yield "account", seen.account
    yield "provider", seen.provider
    yield "model", seen.model or "the account's own"
    yield "answered by", answer.model if answer is not None else ""
    yield "asked", f"about {seen.tokens} tokens as estimated" + _counted(answer)
    yield "answer", f"at most {seen.max_output_tokens} tokens{', without tools' if seen.final else ''}"
    yield "cost", cost(answer.cost_usd) if answer is not None else ""
    yield "tools", ", ".join(tool.name for tool in seen.tools)


def _counted(answer: AnswerView | None) -> str:
    return f", {answer.input_tokens} as counted ({answer.cached_tokens} cached)" if answer is not None else ""


def _layer(layer: LayerView) -> tuple[str, ...]:
    return layer.name, str(layer.characters), str(layer.tokens), layer.note


def _heading(turn: TurnView) -> str:
    said = f" of {turn.tool} ({turn.call_id})" if turn.role is Role.TOOL else ""
    row = f", message {turn.message_id}" if turn.message_id is not None else ""
    return plain(f"== {turn.role}{said}, {turn.tokens} tokens{row}")


def _turn(turn: TurnView) -> Iterator[str]:
    yield from _text(turn.text)
    yield from _calls(turn.tool_calls)
    yield from (f"  [image {image.content_type} {image.digest}]" for image in turn.images)


def _calls(calls: tuple[ToolCallView, ...]) -> Iterator[str]:
    yield from (f"  [calls {plain(call.name)} with {plain(call.arguments)}]" for call in calls)


def _text(text: str) -> Iterator[str]:
    """Show a text as it is, but for what would move the cursor."""
    for line in text.splitlines():
        yield "  " + "".join(character if character.isprintable() or character == "\t" else " " for character in line)
