"""Makes workflow activations cheap: on the event loop instead of in threads, and without visits of plain payloads."""

import asyncio
import ctypes
import functools
import importlib
import inspect
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from functools import partial
from importlib.metadata import version
from typing import Any, cast

import structlog
from temporalio.bridge import worker as bridge
from temporalio.converter import DataConverter

log = structlog.get_logger(__name__)

HANG_SECONDS = 2.0
"""How long an activation may run; the SDK allows as much to an activation in a thread."""
CHECKS_PER_HANG = 2
"""How often the watchdog looks at an activation before it interrupts it."""
THREADS = 500
"""The SDK's own limit of threads for activations; they are used once an activation has hung."""


SDK_VERSION = "1.35.0"
"""The version whose private functions are replaced; with any other version the SDK does all its own work."""

PARAMETERS = {
    "decode_activation": ("activation", "data_converter", "decode_headers", "storage_concurrency_limit"),
    "encode_completion": ("completion", "data_converter", "encode_headers", "storage_concurrency_limit"),
    "create": ("instance", "context_free_dc", "workflow_context_dc", "workflow_context"),
}
"""The replaced functions by their names."""


class ActivationHang(BaseException):
    """Raised inside an activation that hangs; no ``except Exception`` in a workflow stops it."""


class Watchdog:
    """A thread that interrupts a function which runs for too long; it sleeps while no function runs."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.hangs = 0
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._began: float | None = None
        self._runs = 0
        self._thread_id = 0
        self._interrupted = False
        self._awake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self, function: Callable[[], Any]) -> Any:
        """Return what the function returns; raises ``TimeoutError`` when it was interrupted."""
        try:
            self._begin()
            try:
                result = function()
            finally:
                self._end()
        except BaseException:
            if self._interrupted:
                raise TimeoutError from None
            raise
        if self._interrupted:
            raise TimeoutError
        return result

    def check(self) -> None:
        """Interrupt the function if it has run for too long; one that goes on all the same is interrupted again."""
        with self._lock:
            if self._began is None or self._clock() - self._began < self._seconds:
                return
            stack = traceback.format_stack(sys._current_frames().get(self._thread_id))
            self.hangs += 1
            self._interrupted = True
            _raise_in(self._thread_id, ActivationHang)
        log.error("workflow.hangs", seconds=self._seconds, stack="".join(stack))

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._awake.set()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()
        with self._lock:
            self._interrupted = False
            self._thread_id = threading.get_ident()
            self._runs += 1
            self._began = self._clock()
            if not self._awake.is_set():
                self._awake.set()

    def _end(self) -> None:
        """Protect the thread from an interruption that comes too late."""
        with self._lock:
            self._began = None
            if self._interrupted:
                _take_back()

    def _watch(self) -> None:
        checked = 0
        while not self._stopped.is_set():
            self._awake.wait()
            self._stopped.wait(self._seconds / CHECKS_PER_HANG)
            with self._lock:
                if self._began is None and self._runs == checked:
                    self._awake.clear()
                checked = self._runs
            self.check()


class ActivationExecutor(ThreadPoolExecutor):
    """An executor that runs activations on the event loop and reports one that hangs, as the SDK reports it.

    The SDK waits for an activation with a timeout, which cannot fire while the activation holds the event loop. So a
    watchdog interrupts it, and the SDK gets the ``TimeoutError`` on which it reports a deadlock and fails the workflow
    task. From then on activations run in threads: a workflow that hangs again holds up no other job.
    """

    def __init__(self, hang_seconds: float = HANG_SECONDS) -> None:
        super().__init__(THREADS, thread_name_prefix="activation")
        self._watchdog = Watchdog(hang_seconds)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the function with the next iteration of the running event loop, or in a thread after a hang."""
        if self._watchdog.hangs:
            return super().submit(fn, *args, **kwargs)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        # The next iteration, because Python 3.14 refuses to step a workflow's task within the step of another task.
        # The context is empty, as in a thread.
        loop.call_soon(self._run, loop, future, partial(fn, *args, **kwargs), context=Context())
        # ``loop.run_in_executor`` passes a future of its own kind on as it is.
        return cast("Future[Any]", future)

    def _run(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], activation: Callable[[], Any]) -> None:
        error: BaseException | None = None
        result = None
        try:
            result = self._watchdog.run(activation)
        # The SDK awaits the future and handles whatever an activation raises.
        except BaseException as raised:  # noqa: BLE001 - see above
            error = raised
        # A workflow is an event loop of its own and leaves none running when it pauses.
        asyncio._set_running_loop(loop)
        if future.done():  # the SDK gave the activation up
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the watchdog and the threads."""
        self._watchdog.stop()
        super().shutdown(wait, cancel_futures=cancel_futures)


def _raise_in(thread_id: int, error: type[BaseException]) -> None:
    """Raise an exception in a thread at one of its next instructions."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))


def _take_back() -> None:
    """Let what was to be raised in this thread be raised here, once, if it was not raised yet.

    Python has a way to take it back unraised, which leaves a flag of the interpreter set for ever: each function is
    slower from then on, and under a tracer the thread never gets beyond the beginning of one (seen with 3.11).
    """
    with suppress(ActivationHang):
        _raise_in(threading.get_ident(), ActivationHang)  # in the place of one that may be there already
        while True:
            pass


def skip_visits() -> bool:
    """Replace the SDK's functions for the rest of the process; false when they are not the known ones."""
    sdk = _private_parts()
    functions = [getattr(owner, name, None) for owner, name in sdk]
    if not is_known(version("temporalio"), functions):
        log.warning("sdk.unknown", version=version("temporalio"), known=SDK_VERSION)
        return False
    decode, encode, create, nothing_done = cast("list[Callable[..., Any]]", functions)
    bridge.decode_activation = _skipping(decode, nothing_done)
    bridge.encode_completion = _skipping(encode, nothing_done)
    sdk[2][0].create = staticmethod(_sharing(create))
    return True


def _private_parts() -> list[tuple[Any, str]]:
    """Return where the SDK's functions, and what they return where nothing is done, are to be found, if they are."""
    workflow, storage = (_module(f"temporalio.{name}") for name in ("worker._workflow", "converter._extstore"))
    converter = getattr(workflow, "_CommandAwareDataConverter", None)
    return [
        (bridge, "decode_activation"),
        (bridge, "encode_completion"),
        (converter, "create"),
        (storage, "StorageOperationMetrics"),
    ]


def _module(name: str) -> Any:
    with suppress(ImportError):
        return importlib.import_module(name)


def is_known(sdk_version: str, functions: Sequence[Callable[..., Any] | None]) -> bool:
    """Say whether the functions of this version are those that may be replaced; the last makes what they return."""
    *replaced, nothing_done = functions
    found = {one.__name__: tuple(inspect.signature(one).parameters) for one in replaced if one is not None}
    return sdk_version == SDK_VERSION and found == PARAMETERS and nothing_done is not None


def _skipping(visit: Callable[..., Any], nothing_done: Callable[[], Any]) -> Callable[..., Any]:
    """Visit the payloads of an activation or a completion only where there is something to do with them."""

    @functools.wraps(visit)
    async def visit_unless_plain(message: Any, data_converter: DataConverter, *args: Any, **kwargs: Any) -> Any:
        if _is_plain(data_converter):
            return nothing_done()
        return await visit(message, data_converter, *args, **kwargs)

    return visit_unless_plain


def _sharing(create: Callable[..., Any]) -> Callable[..., Any]:
    """Create a converter that follows the command only where a codec would see a difference."""

    @functools.wraps(create)
    def create_unless_plain(*, workflow_context_dc: DataConverter, **kwargs: Any) -> DataConverter:
        if _is_plain(workflow_context_dc):
            return workflow_context_dc
        created: DataConverter = create(workflow_context_dc=workflow_context_dc, **kwargs)
        return created

    return create_unless_plain


def _is_plain(converter: DataConverter) -> bool:
    return converter.payload_codec is None and converter.external_storage is None
