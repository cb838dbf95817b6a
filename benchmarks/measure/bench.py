"""What every measurement works with."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.model import Model
from benchmarks.product import Product, Setting, settle


@dataclass(frozen=True)
class Bench:
    """A folder that is thrown away at the end, the model server, and how often what varies is repeated."""

    folder: Path
    model: Model
    rounds: int

    def setting(self, name: str) -> Setting:
        """Return a Maestro that asks the model server, in a folder of its own."""
        return settle(self.folder / name, self.model)

    def pids(self, product: Product) -> dict[str, int]:
        """Return the processes that share the work, by the names the figures give them."""
        return {"Maestro": product.pid, "Temporal server": product.server_pid, "model server": self.model.pid}
