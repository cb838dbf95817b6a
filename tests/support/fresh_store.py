"""A new store in no time: its tables are made once for each process of the tests, and copied from then on."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from maestro.store.store import Clock, Store, utc_now


def fresh_store(path: Path, clock: Clock = utc_now) -> Store:
    """Return an empty store at this path, as the product would have made it there."""
    shutil.copyfile(_made_once(), path)
    return Store.open(path, clock)


@cache
def _made_once() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fresh-store-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "maestro.db"
    Store.open(path).close()
    return path
