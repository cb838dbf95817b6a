"""Searches texts for an operator's own patterns, in a process that may be killed when one of them does not end.

It is a program of its own that needs the standard library only, so it starts in 20 ms. It reads requests and writes
answers as lines of JSON on the socket that is its standard input: for each pattern the places that it matches, in
characters, or nothing where it is no regular expression.
"""

import json
import re
import signal
import socket
from collections.abc import Iterator

GRACE_SECONDS = 1.0
"""The time after the deadline at which it ends itself, should its parent be gone."""
GROUP = "secret"
"""A pattern with a group of this name means that group alone."""


def serve(connection: socket.socket) -> None:
    """Answer requests until the connection ends."""
    # Python cannot interrupt a running regular expression; with SIG_DFL the kernel kills the process on SIGALRM.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for line in connection.makefile("r", encoding="ascii"):
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + GRACE_SECONDS)
        for pattern in request["patterns"]:
            connection.sendall(json.dumps(_places(pattern, request["text"])).encode("ascii") + b"\n")
        signal.setitimer(signal.ITIMER_REAL, 0)


def _places(pattern: str, text: str) -> list[tuple[int, int]] | None:
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return None
    return list(_matches(compiled, text))


def _matches(compiled: "re.Pattern[str]", text: str) -> Iterator[tuple[int, int]]:
    group = GROUP if GROUP in compiled.groupindex else 0
    for match in compiled.finditer(text):
        start, end = match.span(group)
        if 0 <= start < end:
            yield start, end


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
