"""Work that a cancellation may follow but not cut in half."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def finished(work: Coroutine[Any, Any, Result]) -> Result:
    """Return what the work returns, also when cancelled meanwhile: what it returns is committed before the caller ends.

    The cancellation is then raised by ``maestro.store.commits.committed``.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        return task.result()


async def uninterrupted(work: Coroutine[Any, Any, Result]) -> Result:
    """Return what the work returns; when cancelled meanwhile, finish the work first and then be cancelled."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
