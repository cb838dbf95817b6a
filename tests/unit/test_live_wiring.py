"""No part of any process keeps the value that a live key had at the start (docs/invariants.md: live settings).

Every process is composed with settings in which the live keys are missing, and with live settings that answer only
once it is composed. Whoever reads a live key from the wrong place, or too early, fails here, whatever the key.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from maestro.bootstrap.api import Api
from maestro.bootstrap.connect import Connect
from maestro.bootstrap.process import Process
from maestro.bootstrap.up import Up
from maestro.bootstrap.worker import Worker
from maestro.settings import Loaded, Settings
from maestro.settings.keys import LEAVES, Key
from maestro.settings.live import LiveSettings
from maestro.supervision import Services
from tests.support.ports import free_ports

ONLY_LOOKED_AT = {"tools.approval"}
"""The start warns of names in it that no tool has; who asks whether a call needs a yes reads it then."""

Composed = TypeVar("Composed", bound=Process)


class Closed(LiveSettings):
    """Tells nobody anything before the process is composed."""

    composed = False

    def current(self) -> Settings:
        """Return what holds now."""
        assert self.composed, "a live key was read while the process was being composed, and may have been kept"
        return super().current()


class Ready(Exception):
    """The process is composed."""


def without_live_keys(settings: Settings) -> Settings:
    """Return settings in which to read a live key is an error."""
    bare = settings.model_copy(deep=True)
    for key in LEAVES:
        if key.live and key.path not in ONLY_LOOKED_AT:
            del section_of(bare, key).__dict__[key.names[-1]]
    return bare


def section_of(settings: Settings, key: Key) -> Any:
    section: Any = settings
    for name in key.names[:-1]:
        section = getattr(section, name)
    return section


def guarded(process: Composed) -> Composed:
    """Return a process that can only be composed if no part of it reads a live key meanwhile."""
    whole = process.live.loaded
    process.live = Closed(whole)
    process.live.start = process.settings = without_live_keys(whole.settings)
    return process


PROCESSES: dict[str, Callable[[Loaded], Process]] = {
    "up": lambda loaded: Up(loaded, say=lambda _: None),
    "worker": lambda loaded: Worker(loaded, say=lambda _: None),
    "api": lambda loaded: Api(loaded, say=lambda _: None),
    "connect": lambda loaded: Connect(loaded, lambda _: None, ["web"]),
}


@pytest.mark.parametrize("command", PROCESSES)
async def test_no_part_reads_a_live_key_while_a_process_is_composed(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody, *ports = free_ports(5)
    settings = Settings.model_validate(
        {
            "data_dir": tmp_path,
            "temporal": {"address": f"127.0.0.1:{nobody}"},
            "webui": {"port": ports[0]},
            "web": {"port": ports[1]},
            "health": {"worker_port": ports[2], "connect_port": ports[3]},
            "tools": {"shell": True, "files": True},
        }
    )
    process = guarded(PROCESSES[command](Loaded(settings, {}, None)))

    async def composed(
        services: Services, begun: Coroutine[Any, Any, None], drain: Callable[[], Awaitable[None]]
    ) -> None:
        begun.close()
        raise Ready

    monkeypatch.setattr(Services, "until_stopped", composed)
    with pytest.raises(Ready):
        await process.serve(asyncio.Event())
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


def test_the_guard_is_one() -> None:
    process = guarded(Up(Loaded(Settings(), {}, None), say=lambda _: None))
    with pytest.raises(AttributeError):
        _ = process.settings.jobs.max_attempts
    with pytest.raises(AssertionError):
        process.live.current()
    assert Settings().jobs.max_attempts, "the defaults of everybody else are whole"
    assert process.settings.webui.port
