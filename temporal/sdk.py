"""Adapts the Temporal SDK: activations on the event loop, a quiet log, payloads, and no needless visits of them.

See docs/adr/0035-activations-on-the-event-loop.md. An activation is the SDK's call of workflow code.
"""

import asyncio
import ctypes
import functools
import importlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, ContextVar
from functools import partial
from importlib.metadata import version
from typing import Any, NoReturn, cast

import structlog
from temporalio.api.common.v1 import Payload
from temporalio.bridge import worker as bridge
from temporalio.bridge.proto.workflow_activation import RemoveFromCache
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, EncodingPayloadConverter
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.worker import Worker

from maestro.domain.errors import EncryptionKeyMissing
from temporal.attempts import ExpectedEndFilter
from temporal.codec import ENCRYPTED, KEY_ID

log = structlog.get_logger(__name__)

SDK_VERSION = "1.35.0"
"""The SDK version whose internals this module uses; with any other version, activations run in threads."""
DIVERGED = RemoveFromCache.EvictionReason.NONDETERMINISM
NONDETERMINISM = "[TMPRL1100]"
"""How the SDK marks the failure of a workflow whose code went another way than its history."""
HANG_SECONDS = 2.0
"""Seconds that an activation may run; the SDK has the same limit for activations in threads."""
THREADS = 500
"""The most threads for activations, as in the SDK; used only after an activation has hung."""


IN_ACTIVATION: ContextVar[bool] = ContextVar("in_activation", default=False)
"""Whether the code runs in an activation, where the SDK decodes the payloads of a workflow."""


class ActivationHang(BaseException):
    """Raised inside an activation that runs too long; no ``except Exception`` in a workflow catches this."""


class Watchdog:
    """A thread that interrupts a function that runs too long; the thread sleeps while no function runs."""

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
        """Call the function and return its result; raises ``TimeoutError`` when the function was interrupted."""
        try:
            self._begin_activation()
            try:
                result = function()
            finally:
                self._end_activation()
        except BaseException:
            if self._interrupted:
                self._end_activation()  # Another interruption may have hit the call above.
                raise TimeoutError from None
            raise
        if self._interrupted:
            raise TimeoutError
        return result

    def check_activations(self) -> None:
        """Interrupt the function if it has run for too long, and again at each check until it ends."""
        with self._lock:
            if self._began is None or self._clock() - self._began < self._seconds:
                return
            stack = traceback.format_stack(sys._current_frames().get(self._thread_id))
            self.hangs += 1
            self._interrupted = True
            _raise_in_thread(self._thread_id, ActivationHang)
        log.error("workflow.hangs", seconds=self._seconds, stack="".join(stack))

    def stop(self) -> None:
        """End the watchdog's thread."""
        self._stopped.set()
        self._awake.set()

    def _begin_activation(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch_activations, name="watchdog", daemon=True)
            self._thread.start()
        with self._lock:
            self._interrupted = False
            self._thread_id = threading.get_ident()
            self._runs += 1
            self._began = self._clock()
            if not self._awake.is_set():
                self._awake.set()

    def _end_activation(self) -> None:
        """Clear an interruption that arrives after the function has ended, so that it does not hit the caller.

        Interruptions come until ``_began`` is None. On a busy machine another one may arrive before that is set, so
        setting it is repeated.
        """
        while self._began is not None:
            with suppress(ActivationHang), self._lock:
                self._began = None
                if self._interrupted:
                    _clear_pending_hang()

    def _watch_activations(self) -> None:
        checked = 0
        while not self._stopped.is_set():
            self._awake.wait()
            self._stopped.wait(self._seconds / 2)
            with self._lock:
                if self._began is None and self._runs == checked:
                    self._awake.clear()
                checked = self._runs
            self.check_activations()


class ActivationExecutor(ThreadPoolExecutor):
    """An executor that runs activations on the event loop, and reports an activation that hangs as the SDK would.

    The SDK waits for an activation with a timeout, which cannot fire while the activation holds the event loop. So a
    watchdog interrupts the activation, and the SDK gets the ``TimeoutError`` on which it reports a deadlock and fails
    the workflow task. After the first hang, activations run in threads: a workflow that hangs again delays no other
    job.
    """

    def __init__(self, hang_seconds: float = HANG_SECONDS) -> None:
        super().__init__(THREADS, thread_name_prefix="activation")
        self._watchdog = Watchdog(hang_seconds)
        self._is_known = version("temporalio") == SDK_VERSION
        if not self._is_known:
            log.warning("activations.in_threads", sdk=version("temporalio"), known=SDK_VERSION)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the function in the next iteration of the running event loop.

        After a hang, and with another version of the SDK, the function runs in a thread, as in the SDK.
        """
        activation = partial(_run_marked, fn, *args, **kwargs)
        if self._watchdog.hangs or not self._is_known:
            return super().submit(activation)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        # Python 3.14 lets no asyncio task run inside another one, so the event loop calls the function in its next
        # iteration. The function gets an empty context (``contextvars``), as in the SDK's threads.
        loop.call_soon(self._run, loop, future, activation, context=Context())
        # ``loop.run_in_executor`` returns an asyncio future unchanged.
        return cast("Future[Any]", future)

    def _run(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], activation: Callable[[], Any]) -> None:
        if future.done():  # The SDK cancelled the activation before the activation began.
            return
        error: Exception | None = None
        result = None
        try:
            result = self._watchdog.run(activation)
        except Exception as raised:  # noqa: BLE001 - the SDK awaits the future, and fails the workflow task
            error = raised
        # Errors like SystemExit end the SDK's handler without a report, and Temporal waits for the timeout of the
        # workflow task; a SystemExit would even end the process.
        except BaseException as raised:  # noqa: BLE001 - see above
            error = RuntimeError(f"a workflow raised {type(raised).__name__} {raised}".rstrip())
        # A workflow sets itself as the running event loop, and none afterwards: the real loop is set again.
        asyncio._set_running_loop(loop)
        if future.done():  # The SDK no longer waits for the result.
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the watchdog and the threads."""
        self._watchdog.stop()
        super().shutdown(wait, cancel_futures=cancel_futures)


def _run_marked(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Run an activation so that code in it can tell that it runs in one."""
    IN_ACTIVATION.set(True)
    return fn(*args, **kwargs)


def _raise_in_thread(thread_id: int, error: type[BaseException]) -> None:
    """Raise an exception in a thread at one of its next instructions."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))


def _clear_pending_hang() -> None:
    """Clear an interruption that may be pending in this thread, by raising and suppressing it once.

    Python can also withdraw a pending exception, but that sets an interpreter flag for ever. The flag slows every
    function call, and under a tracer the thread never gets beyond the first instruction of a function (seen with 3.11).
    """
    with suppress(ActivationHang):
        _raise_in_thread(threading.get_ident(), ActivationHang)  # This replaces a pending exception.
        while True:
            pass


def skip_payload_visits() -> bool:
    """Let the SDK visit payloads only if a codec has work to do; return False for another version of the SDK.

    The SDK's functions stay replaced for the rest of the process.
    """
    if version("temporalio") != SDK_VERSION:
        log.warning("sdk.unknown", version=version("temporalio"), known=SDK_VERSION)
        return False
    # Imported only here, because another version of the SDK may lack these private modules.
    workflow: Any = importlib.import_module("temporalio.worker._workflow")
    storage: Any = importlib.import_module("temporalio.converter._extstore")
    converter, nothing_done = workflow._CommandAwareDataConverter, storage.StorageOperationMetrics
    bridge.decode_activation = _wrap_visit(bridge.decode_activation, nothing_done)
    bridge.encode_completion = _wrap_visit(bridge.encode_completion, nothing_done)
    converter.create = staticmethod(_wrap_converter_factory(converter.create))
    return True


def _wrap_visit(visit: Callable[..., Any], nothing_done: Callable[[], Any]) -> Callable[..., Any]:
    """Return ``visit`` wrapped so that it does nothing where no codec has work to do."""

    @functools.wraps(visit)
    async def visit_unless_plain(message: Any, data_converter: DataConverter, *args: Any, **kwargs: Any) -> Any:
        if _is_default_converter(data_converter):
            return nothing_done()
        return await visit(message, data_converter, *args, **kwargs)

    return visit_unless_plain


def _wrap_converter_factory(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``create`` wrapped so that it returns the given converter where no codec has work to do."""

    @functools.wraps(create)
    def create_unless_plain(*, workflow_context_dc: DataConverter, **kwargs: Any) -> DataConverter:
        if _is_default_converter(workflow_context_dc):
            return workflow_context_dc
        created: DataConverter = create(workflow_context_dc=workflow_context_dc, **kwargs)
        return created

    return create_unless_plain


def _is_default_converter(converter: DataConverter) -> bool:
    return converter.payload_codec is None and converter.external_storage is None


def report_divergence(worker: Worker, report: Callable[[], None]) -> None:
    """Call ``report`` when the code of a workflow of this worker went another way than the workflow's history.

    With another version of the SDK nothing is reported; the reconciler finds such workflows at its next comparison.
    """
    runs: Any = worker._workflow_worker if version("temporalio") == SDK_VERSION else None
    if runs is not None:
        runs._on_eviction_hook = lambda _, job: report() if job.reason == DIVERGED else None


class UndecodedPayload(BaseException):
    """Raised in a workflow whose payloads this process cannot decrypt, so that another process can run its task.

    It is no ``Exception``, which would fail the workflow.
    """


class _RefusedPayloads(EncodingPayloadConverter):
    """Raises a clear error for a payload that no codec has decrypted, because this process has no keys."""

    @property
    def encoding(self) -> str:
        return ENCRYPTED.decode()

    def to_payload(self, value: Any) -> None:
        """Leave every value to the other converters."""

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> NoReturn:  # noqa: ARG002 - see above
        """Raise an error that names the key and the fix."""
        problem = (
            f"A payload is encrypted with the key '{payload.metadata.get(KEY_ID, b'').decode(errors='replace')}', and "
            "temporal.codec.keys is empty: give every process the same keys."
        )
        if IN_ACTIVATION.get():
            raise UndecodedPayload(problem)
        raise EncryptionKeyMissing(problem)


class ReferencePayloadConverter(PydanticPayloadConverter):
    """The payload converter of Maestro: pydantic models as JSON, and a clear error for encrypted payloads."""

    def __init__(self) -> None:
        super().__init__()
        self.converters = {**self.converters, ENCRYPTED: _RefusedPayloads()}


def configure_sdk() -> None:
    """Silence the SDK's retry warnings and skip its needless work; call this before the first client is created.

    The SDK's native part writes coloured lines to standard error, whatever the log format. ``temporal.client`` reports
    changes of the connection instead, and the journal logs the end of each step in one line.
    """
    quiet = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    runtime = Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=quiet)))
    Runtime.set_default(runtime, error_if_already_set=False)
    skip_payload_visits()
    for name in ("temporalio.activity", "temporalio.worker._activity"):  # the SDK's loggers about the ends of steps
        logging.getLogger(name).addFilter(ExpectedEndFilter())
