"""What every measurement works with."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.model import Model
from benchmarks.processes import ROOT
from benchmarks.product import Setting, settle

THIS, BASE = "this", "base"


@dataclass(frozen=True)
class Bench:
    """A folder that is thrown away at the end, the model server, and how often what varies is repeated.

    ``trees`` are the sources that are measured in turns: these, and those of the base where one is given.
    """

    folder: Path
    model: Model
    rounds: int
    trees: Mapping[str, Path]

    def setting(self, name: str, tree: Path = ROOT) -> Setting:
        """Return a Maestro that asks the model server, in a folder of its own."""
        return settle(self.folder / name, self.model, tree)
