"""``maestro init``: decides what stands in ``maestro.json``, writes it, and prepares the cluster it names."""

import asyncio
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import count
from pathlib import Path

from maestro.bootstrap.discovery import Discovery, discover
from maestro.bootstrap.endpoints import endpoint_of
from maestro.domain.errors import ConfigurationError
from maestro.settings import Survey, load, named_file, survey
from temporal.diagnosis import prepare

Document = Mapping[str, object]

CONDUCTOR = {"slug": "conductor", "role": "conductor"}


class Action(StrEnum):
    """What becomes of the file."""

    WRITTEN = "written"
    REPLACED = "replaced"
    KEPT = "kept"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Wish:
    """What was asked for; an option that was not given is None."""

    file: Path | None
    overrides: Mapping[str, object]
    force: bool
    retention: timedelta


@dataclass(frozen=True)
class Plan:
    """What will be done; ``address`` is the cluster to prepare, empty for none."""

    file: Path
    action: Action
    document: Document
    found: Discovery
    address: str


def plan(wish: Wish, environment: Mapping[str, str]) -> Plan:
    """Look around and decide.

    Raises ``ConfigurationError`` when the file that is there would have to be replaced, or something in it is wrong,
    and nobody said that it may be.
    """
    file = named_file(wish.file, environment)
    present = os.path.lexists(file)
    surveyed = survey(file if present else None, environment, wish.overrides)
    if surveyed.problems and present and wish.force:
        surveyed = survey(None, environment, wish.overrides)  # what is wrong in the file goes with the file
    if surveyed.problems:
        raise ConfigurationError("; ".join(surveyed.problems))
    found = asyncio.run(discover(environment))
    wanted = document(surveyed, found, wish.overrides)
    address = surveyed.settings.temporal.address
    if not address and wish.overrides.get("temporal.namespace") is not None:
        raise ConfigurationError("a namespace is one of a Temporal server of your own: add --temporal-address")
    named = wish.overrides.get("temporal.address") is not None or wish.overrides.get("temporal.namespace") is not None
    action = decide(present, surveyed.written == wanted, wish.force, bool(address) and not named)
    if action is None:
        raise ConfigurationError(
            f"{file} is there already and stays as it is; change it by hand, or add --force to replace it (the old one "
            "is kept beside it)"
        )
    return Plan(file, action, wanted, found, address)


def decide(present: bool, same: bool, force: bool, only_prepare: bool) -> Action | None:
    """Say what becomes of the file, None when that is not allowed.

    A file that is there is replaced only by force. It needs no replacing when it is as it would be written, or when
    all there is to do is to prepare the cluster it names.
    """
    if not present:
        return Action.WRITTEN
    if same:
        return Action.UNCHANGED
    if force:
        return Action.REPLACED
    return Action.KEPT if only_prepare else None


def document(surveyed: Survey, found: Discovery, overrides: Mapping[str, object]) -> Document:
    """Return what is to stand in the file.

    Where the data and the cluster are is taken over from an older file: forgetting it would be losing them.
    """
    older = surveyed.written
    data_dir = overrides.get("dataDir") or older.get("dataDir")
    temporal = _temporal(surveyed, older)
    return {
        **({"dataDir": str(data_dir)} if data_dir else {}),
        **({"temporal": temporal} if temporal else {}),
        "agents": [CONDUCTOR],
        "llm": {"accounts": [dict(entry) for entry in found.accounts]},
    }


def carry_out(decided: Plan) -> Path | None:
    """Write the file, readable by its owner only; return where the older one is kept, None when there was none."""
    if decided.action in (Action.KEPT, Action.UNCHANGED):
        return None
    try:
        return _write(decided.file.resolve(), json.dumps(decided.document, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigurationError(
            f"{decided.file} cannot be written ({error.strerror}); name another place with --config"
        ) from None


def prepare_cluster(decided: Plan, wish: Wish, environment: Mapping[str, str]) -> Sequence[str]:
    """Prepare the namespace and the search attributes on the cluster, and say what was done, in sentences.

    Raises ``TemporalUnavailable`` with what an administrator has to do where we may not.
    """
    settings = load(decided.file, environment, wish.overrides).settings
    return asyncio.run(prepare(endpoint_of(settings), wish.retention))


def _temporal(surveyed: Survey, older: Mapping[str, object]) -> Mapping[str, object]:
    written = older.get("temporal", {})
    before = dict(written) if isinstance(written, dict) else {}
    temporal = surveyed.settings.temporal
    if not temporal.address:
        return before
    place = {"address": temporal.address, "namespace": temporal.namespace}
    return {**before, **place, **({"tls": True} if temporal.tls else {})}


def _write(file: Path, text: str) -> Path | None:
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as new:
        new.write(text)
        new.flush()
        os.fsync(new.fileno())
    try:
        backup = _kept(file) if file.exists() else None
        fresh.replace(file)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    return backup


def _kept(file: Path) -> Path:
    """Copy the file to a name beside it that is still free."""
    names = (file.with_name(f"{file.name}.bak{number or ''}") for number in count())
    backup = next(name for name in names if not os.path.lexists(name))
    shutil.copyfile(file, backup)
    backup.chmod(0o600)  # it may hold keys
    return backup
