"""What a person at a terminal sees of a conversation, and what a program reads of it."""

import json
import readline
import sys
import threading

import typer

from maestro.cli.chat_client import Frame
from maestro.cli.chat_texts import shown

PROMPT = "> "
CLEAR_LINE = "\r\x1b[K"
TYPING = "\x1b[2mAn agent is typing …\x1b[0m"
AWAY = "Maestro is away; this goes on when it is back."


class Screen:
    """Writes what arrives, also while a line is being typed; safe to use from two threads.

    Messages go to standard output, everything else to standard error, so that a script reads answers only. ``address``
    is where files are fetched from.
    """

    def __init__(self, as_json: bool, address: str = "") -> None:
        self._address = address
        self._as_json = as_json
        self._drawn = sys.stdout.isatty() and not as_json
        self._lock = threading.Lock()
        self._asking = False
        self._shows_typing = False

    def message(self, frame: Frame, *, answers: bool = True, aside: bool = False) -> None:
        """Show a message; ``aside`` keeps one that nobody waits for out of what a script takes for the answer."""
        if self._as_json:
            self.record(frame, answers=answers)
        elif aside:
            self.note(f"Earlier in this channel: {shown(frame, self._address)}")
        else:
            self._write(shown(frame, self._address))

    def record(self, frame: Frame, *, answers: bool) -> None:
        """Write a message for programs; people are shown nothing."""
        if self._as_json:
            self._write(json.dumps({**frame, "answers": answers}, ensure_ascii=False))

    def typing(self) -> None:
        """Show that an agent is typing, unless a person is."""
        with self._lock:
            if self._drawn and not self._asking and not self._shows_typing:
                self._shows_typing = True
                typer.echo(TYPING, nl=False)

    def note(self, text: str) -> None:
        """Say something that is no message."""
        self._write(text, err=True)

    def read(self) -> str:
        """Return the next line a person types; raises ``EOFError`` at the end and ``KeyboardInterrupt``."""
        with self._lock:
            self._erase()
            self._asking = True
        try:
            return input(PROMPT if self._drawn else "")
        finally:
            self._asking = False

    def _write(self, text: str, *, err: bool = False) -> None:
        with self._lock:
            self._erase()
            if self._asking and self._drawn:
                typer.echo(CLEAR_LINE, nl=False)
            typer.echo(text, err=err)
            if self._asking and self._drawn:
                typer.echo(PROMPT + readline.get_line_buffer(), nl=False)

    def _erase(self) -> None:
        if self._shows_typing:
            self._shows_typing = False
            typer.echo(CLEAR_LINE, nl=False)
