"""The model server, the sources and the folder of a measurement."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.model import Model
from benchmarks.processes import ROOT
from benchmarks.product import Setting, create_setting

THIS, BASE = "this", "base"


@dataclass(frozen=True)
class Bench:
    """A folder that is deleted at the end, the model server, and the rounds of measurements that vary.

    ``trees`` are the sources that are measured in turns: these, and those of the base, if there is one.
    """

    folder: Path
    model: Model
    rounds: int
    trees: Mapping[str, Path]

    def setting(self, name: str, tree: Path = ROOT) -> Setting:
        """Return a Maestro with the model server, in a folder of its own."""
        return create_setting(self.folder / name, self.model, tree)
