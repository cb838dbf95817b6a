"""A Dockerfile as far as tests ask about it: its instructions, and what its last stage says of the process."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Instruction:
    """One instruction: its word in capitals, and the rest with continued lines joined."""

    word: str
    text: str


def instructions(file: Path) -> list[Instruction]:
    """Return all instructions in order."""
    lines = [line for line in file.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = (line.strip().partition(" ") for line in joined.splitlines())
    return [Instruction(word.upper(), " ".join(text.split())) for word, _, text in pairs]


@dataclass(frozen=True)
class Image:
    """What a container of the image is started with."""

    entrypoint: Sequence[str]
    environment: dict[str, str]
    user: str
    working_directory: str


def image(file: Path) -> Image:
    """Return what the last stage says; raises where it does not say it."""
    found = instructions(file)
    last = max(position for position, instruction in enumerate(found) if instruction.word == "FROM")
    stage = {instruction.word: instruction.text for instruction in found[last:]}
    settings = [pair.partition("=") for pair in shlex.split(stage["ENV"])]
    return Image(
        entrypoint=json.loads(stage["ENTRYPOINT"]),
        environment={name: value for name, _, value in settings},
        user=stage["USER"],
        working_directory=stage["WORKDIR"],
    )
