"""A shell for the blocks of a page, in which ``maestro`` is the command of this checkout.

What prepares a block may use ``field``, which prints a value of the JSON on its standard input: ``field items 0 id``.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import socketserver
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.documentation.blocks import Block
from tests.support.forking import PATIENCE, forked

SHIM = """\
#!{python} -IS
import json, os, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect({door!r})
asked = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ), "piped": sys.stdin.read()}}
link.sendall(json.dumps(asked).encode() + b"\\n")
ended = json.loads(link.makefile().readline())
sys.stdout.write(ended["output"])
sys.stderr.write(ended["errors"])
sys.exit(ended["code"])
"""
"""The command in the shell: it has a process of ours forked, which starts in a moment, and passes everything on."""
FIELD = """\
#!{python} -IS
import json, sys
found = json.load(sys.stdin)
for name in sys.argv[1:]:
    found = found[int(name) if isinstance(found, list) else name]
print(found)
"""
PROGRAMS = ("curl", "git", "jq", "openssl")
"""Programs of the machine that pages use, and that a machine with Maestro need not have."""


class Answering(socketserver.StreamRequestHandler):
    """Runs the command line that it is sent."""

    def handle(self) -> None:
        """Answer one request."""
        asked = json.loads(self.rfile.readline())
        ended = forked(
            *asked["arguments"], folder=Path(asked["folder"]), environment=asked["environment"], piped=asked["piped"]
        )
        self.wfile.write(json.dumps(vars(ended)).encode() + b"\n")


@contextmanager
def command_folder() -> Iterator[Path]:
    """Make a folder for the ``PATH`` with the command ``maestro``, and serve it."""
    with tempfile.TemporaryDirectory() as folder:
        door = str(Path(folder, "door"))
        for name, text in {"maestro": SHIM, "field": FIELD}.items():
            Path(folder, name).write_text(text.format(python=sys.executable, door=door))
            Path(folder, name).chmod(0o755)
        with socketserver.ThreadingUnixStreamServer(door, Answering) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield Path(folder)
            finally:
                server.shutdown()
                thread.join(PATIENCE)


@dataclass(frozen=True)
class Surroundings:
    """What the blocks of a page run in: a folder, environment variables, and addresses in place of documented ones."""

    folder: Path
    environment: dict[str, str]
    addresses: Mapping[str, str]


def missing_programs(block: Block) -> Sequence[str]:
    """Return the programs that a block uses and this machine does not have."""
    text = block.text + block.given
    return [name for name in PROGRAMS if re.search(rf"\b{name}\b", text) and shutil.which(name) is None]


def script_of(blocks: Sequence[Block], addresses: Mapping[str, str]) -> str:
    """Return a script that runs the blocks one after the other, each in a shell of its own, and names each before."""
    lines = ["set -euo pipefail"]
    for block in blocks:
        text = block.text
        for documented, real in addresses.items():
            text = text.replace(documented, real)
        lines += [f"echo '--- {block.place}' >&2", "(", block.given, f"block={shlex.quote(text)}"]
        lines += [rf'block=$(sed "s|\b{name}\b|${name}|g" <<<"$block")' for name in block.names]
        lines += ['eval "$block"', ")"]
    return "\n".join(lines)


async def run_blocks(blocks: Sequence[Block], around: Surroundings) -> tuple[int, str]:
    """Run the blocks of a page in one folder; return the exit code and all that they wrote."""
    around.folder.mkdir(parents=True, exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        script_of(blocks, around.addresses),
        cwd=around.folder,
        env={**os.environ, **around.environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()
