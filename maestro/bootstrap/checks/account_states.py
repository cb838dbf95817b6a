"""What the store says of accounts: who was added while Maestro ran, who is disabled, who is left alone for a while."""

import os
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from maestro.bootstrap.checks.subject import Subject, broken, fine, note
from maestro.domain.diagnosis import Diagnosis
from maestro.domain.errors import MaestroError
from maestro.domain.llm.accounts import AccountStatus, ModelAccount
from maestro.llm.cli_runner import CLAUDE
from maestro.llm.protocols import Account
from maestro.store.inspection import stored_accounts

CHECK = "accounts"


def stored(subject: Subject) -> Sequence[ModelAccount]:
    """Return the accounts in the store, none where it cannot be read: the check of the store says why."""
    if not os.path.exists(subject.settings.database):
        return ()
    try:
        return stored_accounts(subject.settings.database)
    except MaestroError:
        return ()


def states(rows: Sequence[ModelAccount]) -> list[Diagnosis]:
    """Return a line for each account that is not asked at present."""
    now = datetime.now(UTC)
    told = [said for row in rows if (said := _state(row, now)) is not None]
    if rows and all(row.status is AccountStatus.DISABLED for row in rows):
        enable = "Give one a working key, or enable it with `maestro accounts enable NAME`."
        told.append(broken(CHECK, "every account is disabled: no message can be answered", enable))
    return told


def command(account: Account, path: str) -> Diagnosis:
    """Say whether the command of a subscription can be run; whether it is logged in would cost a call."""
    check = f"account {account.name}"
    what = f"{account.provider}/{account.model}"
    found = shutil.which(CLAUDE, path=path)
    if found is None:
        return broken(
            check,
            f"{what} needs the command {CLAUDE}, which is not on the PATH",
            "Install Claude Code and log in with it, or take the account out.",
        )
    if account.home_dir and not Path(account.home_dir).expanduser().is_dir():
        login = f"Log in with CLAUDE_CONFIG_DIR={account.home_dir} {CLAUDE}, or correct homeDir."
        return broken(check, f"{what}: there is no folder {account.home_dir} with its login", login)
    return fine(check, f"{what} through {found}; whether it is logged in shows at the first call")


def _state(row: ModelAccount, now: datetime) -> Diagnosis | None:
    check = f"account {row.name}"
    if row.status is AccountStatus.DISABLED:
        why = f" after {row.last_error}" if row.last_error else ""
        fix = f"Give it a working key, or `maestro accounts enable {row.name}`."
        return note(check, f"it is disabled{why} and is not asked", fix)
    if row.rate_limited_until is not None and row.rate_limited_until > now:
        until = f"{row.rate_limited_until:%Y-%m-%d %H:%M:%S} UTC"
        return note(check, f"it, or a model of it, is left alone until {until} ({row.last_error})")
    return None
