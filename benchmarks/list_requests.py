"""Request every list and page over a large store, and measure the server time.

``python -m benchmarks.list_requests <folder> <requests>`` makes the store and prints, as JSON, its size, the CPU time
of each request in milliseconds, and the size of each page. It is a process of its own, so that nothing else runs in
it.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx

from benchmarks.list_rows import DAYS, Extent
from benchmarks.list_store import build
from benchmarks.measure.lists import LISTS, PAGES
from maestro.store.store import Store, utc_now
from tests.support.api_client import BASIC, app_of, client
from tests.support.job_rows import Clock, JobRows

FILES = re.compile(r'(?:href|src)="(/static/[^"]+\.(?:css|js))"')
IMPORTS = re.compile(r'(?:from|import)\s*\(?\s*"\./([\w./-]+\.js)"')


async def _measure_requests(http: httpx.AsyncClient, path: str, requests: int) -> dict[str, Any]:
    """Return the CPU time of each request for a path, after one that is not measured, and the last response."""
    answer = await http.get(path)
    if answer.is_error:
        raise RuntimeError(f"{path} answered {answer.status_code}: {answer.text[:300]}")
    cpu = []
    for _ in range(requests):
        spent = time.process_time()
        answer = await http.get(path)
        cpu.append((time.process_time() - spent) * 1000)
    return {"cpu": cpu, "text": answer.text}


async def _page_bytes(http: httpx.AsyncClient, text: str) -> int:
    """Return the bytes of a page with every style sheet and script that it loads or imports."""
    pending, files = FILES.findall(text), dict[str, bytes]()
    while pending:
        path = pending.pop()
        if path not in files:
            files[path] = (await http.get(path)).content
            folder = path.rsplit("/", 1)[0]
            pending += [f"{folder}/{name}" for name in IMPORTS.findall(files[path].decode())]
    return len(text.encode()) + sum(map(len, files.values()))


async def request_all(rows: JobRows, requests: int) -> Mapping[str, Any]:
    """Request every list and page, without the pages that this release does not have."""
    lists, pages = {}, {}
    async with client(app_of(rows), auth=BASIC) as http:
        first = (rows.clock() - timedelta(days=DAYS)).date()
        cursor = (await http.get("/api/jobs")).json()["next"]
        for name, path in LISTS.items():
            lists[name] = await _measure_requests(http, path.format(first=first, cursor=cursor), requests)
            del lists[name]["text"]
        for name, path in PAGES.items():
            if (await http.get(path.partition("?")[0])).status_code != HTTPStatus.NOT_FOUND:
                measured = await _measure_requests(http, path.format(first=first), requests)
                text = measured.pop("text")
                pages[name] = {**measured, "bytes": await _page_bytes(http, text)}
    return {"lists": lists, "pages": pages}


def measure(folder: Path, requests: int, extent: Extent) -> Mapping[str, Any]:
    """Make the store and send the requests."""
    path, now = folder / "maestro.db", utc_now()
    build(path, extent, now)
    clock = Clock(now)
    with closing(Store.open(path, clock)) as store:
        measured = asyncio.run(request_all(JobRows(store, clock), requests))
    return {"bytes": path.stat().st_size, **measured}


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    folder, requests = arguments
    print(json.dumps(measure(Path(folder), int(requests), Extent())))


if __name__ == "__main__":
    main(sys.argv[1:])
