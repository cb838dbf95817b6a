"""A store on PostgreSQL where its driver is not installed."""

import sys

import pytest

from maestro.domain.errors import ConfigurationError
from maestro.store.engine.database import open_database


def test_a_missing_driver_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "maestro.store.engine.postgresql", raising=False)
    with pytest.raises(ConfigurationError, match=r"maestro-agents\[postgresql\]"):
        open_database("postgresql://localhost/maestro")
