"""A program that searches texts for an operator's own patterns; Maestro kills it when a search takes too long.

The program imports the standard library only, so that it starts in 20 ms. It reads requests and writes answers as lines
of JSON on the socket that is its standard input: for each pattern the ranges of characters that match, or null for an
invalid regular expression.
"""

import json
import re
import signal
import socket
from collections.abc import Iterator

GRACE_SECONDS = 1.0
"""Seconds after the deadline at which this program ends itself, in case its parent process is gone."""
GROUP = "secret"
"""The group of a pattern that marks the secret; in a pattern without it, the whole match is the secret."""


def serve_requests(connection: socket.socket) -> None:
    """Answer requests on the socket until the connection ends."""
    # Python cannot interrupt a running regular expression; with SIG_DFL the kernel kills the process on SIGALRM.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for line in connection.makefile("r", encoding="ascii"):
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + GRACE_SECONDS)
        for pattern in request["patterns"]:
            connection.sendall(json.dumps(_match_ranges(pattern, request["text"])).encode("ascii") + b"\n")
        signal.setitimer(signal.ITIMER_REAL, 0)


def _match_ranges(pattern: str, text: str) -> list[tuple[int, int]] | None:
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return None
    return list(_iterate_matches(compiled, text))


def _iterate_matches(compiled: "re.Pattern[str]", text: str) -> Iterator[tuple[int, int]]:
    group = GROUP if GROUP in compiled.groupindex else 0
    for match in compiled.finditer(text):
        start, end = match.span(group)
        if 0 <= start < end:
            yield start, end


if __name__ == "__main__":
    serve_requests(socket.socket(fileno=0))
