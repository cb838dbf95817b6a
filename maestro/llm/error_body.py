"""Reads the body of an error: what only a provider writes in it, and its sentence, which may quote what a person wrote.

Some servers send back the whole prompt they refuse; what stands in there says nothing of an account.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SENTENCE_LIMIT = 2_000
"""Characters of a sentence that are read; what a provider has to say itself it says first."""

PAGE_LIMIT = 64 * 1024
"""Characters that are read of a body that is not JSON."""

_CODES = ("code", "type", "status")
_DETAILS = ("reason", "retryDelay")
_FLAG = "flagged_input"
"""The key beside which OpenRouter quotes what it does not hand on; the key is its own word."""


@dataclass(frozen=True, slots=True)
class Said:
    """``codes`` are nobody's words but the provider's, as JSON would write them; ``sentences`` are meant for people."""

    codes: str = ""
    sentences: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Everything, the codes first."""
        return "\n".join((self.codes, *self.sentences))


def read(body: str) -> Said:
    """Read a body; of one that is not JSON every word counts as the provider's, of broken JSON none."""
    try:
        whole: Any = json.loads(body)
    except (ValueError, RecursionError):
        # Cut off, it still holds a prompt, and there is no telling where.
        return Said() if body.lstrip().startswith(("{", "[")) else Said(codes=body[:PAGE_LIMIT])
    if isinstance(whole, list):
        whole = next(iter(whole), None)
    return _of(whole) if isinstance(whole, Mapping) else Said(codes=body[:PAGE_LIMIT])


def told_to_people(text: str) -> Said:
    """Return a text of which no part is known to be the provider's own."""
    # Without its quotation marks it cannot pass for a field.
    return Said(sentences=(text[:SENTENCE_LIMIT].replace('"', "'"),))


def _of(whole: Mapping[str, Any]) -> Said:
    """Read an object: its ``error`` is an object, a sentence (Ollama), or the whole of it (older vLLM)."""
    error = whole.get("error") or whole
    if not isinstance(error, Mapping):
        return Said("\n".join(_fields(whole, _CODES)), (*_sentences(error), *_sentences(whole.get("message"))))
    metadata = _object(error.get("metadata"))
    # What the vendor said that OpenRouter asked.
    vendor = _vendor(metadata.get("raw"))
    codes = [*_fields(error, _CODES), *_details(error.get("details")), *([f'"{_FLAG}"'] if _FLAG in metadata else [])]
    sentences = _sentences(error.get("message") or error.get("detail"))
    return Said("\n".join(filter(None, [*codes, vendor.codes])), (*sentences, *vendor.sentences))


def _vendor(raw: Any) -> Said:
    if not isinstance(raw, str):
        return Said()
    return read(raw) if raw.lstrip().startswith("{") else told_to_people(raw)


def _details(details: Any) -> Iterator[str]:
    for detail in details if isinstance(details, list) else ():
        yield from _fields(_object(detail), _DETAILS)


def _fields(of: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    """Yield the fields of these names that are there, as JSON writes them."""
    for name in names:
        if isinstance(value := of.get(name), str | int):
            yield f'"{name}": "{value}"'


def _sentences(text: Any) -> tuple[str, ...]:
    return told_to_people(text).sentences if isinstance(text, str) else ()


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
