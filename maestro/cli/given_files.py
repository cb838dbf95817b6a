"""Texts that are given to a command in files."""

import sys
from pathlib import Path

from maestro.domain.errors import ConfigurationError

STANDARD_INPUT = Path("-")


def text_of(file: Path) -> str:
    """Return what a file says, or standard input for ``-``; raises ``ConfigurationError`` when it cannot be read."""
    try:
        return sys.stdin.read() if file == STANDARD_INPUT else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{file} cannot be read: {reason}; name another file") from None


def bytes_of(file: Path) -> bytes:
    """Return what is in a file, or standard input for ``-``; raises ``ConfigurationError`` when it cannot be read."""
    try:
        return sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}; name another file") from None
