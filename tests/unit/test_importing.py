"""Imports without the garbage collector."""

import gc
from collections.abc import Iterator

import pytest

from maestro.importing import collector_off


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


def test_the_collector_is_off_inside_and_spares_what_was_imported() -> None:
    gc.enable()
    before = gc.get_freeze_count()
    with collector_off():
        assert not gc.isenabled()
        imported = [[number] for number in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(imported)


def test_a_failed_import_turns_it_on_again() -> None:
    gc.enable()
    with pytest.raises(ImportError), collector_off():
        raise ImportError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_off():
        pass
    assert not gc.isenabled()
