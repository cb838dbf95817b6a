"""Adapts the SDK to this process: the log of its native part, and work that can be skipped."""

import functools
import importlib
import inspect
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, cast

from temporalio.bridge import worker as bridge
from temporalio.converter import DataConverter
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from temporal.activations import SDK_VERSION, log
from temporal.failures import ExpectedEnds

PARAMETERS = {
    "decode_activation": ("activation", "data_converter", "decode_headers", "storage_concurrency_limit"),
    "encode_completion": ("completion", "data_converter", "encode_headers", "storage_concurrency_limit"),
    "create": ("instance", "context_free_dc", "workflow_context_dc", "workflow_context"),
}
"""The replaced functions by their names."""

QUIET = "ERROR"
OF_STEPS = ("temporalio.activity", "temporalio.worker._activity")
"""The SDK's loggers about the ends of steps."""


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
    """Return where the SDK has the functions to replace: their module or class, and their names."""
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
    """Return whether the functions are those that may be replaced; the last one makes the result of a skipped visit."""
    *replaced, nothing_done = functions
    found = {one.__name__: tuple(inspect.signature(one).parameters) for one in replaced if one is not None}
    return sdk_version == SDK_VERSION and found == PARAMETERS and nothing_done is not None


def _skipping(visit: Callable[..., Any], nothing_done: Callable[[], Any]) -> Callable[..., Any]:
    """Visit the payloads of an activation or a completion only where a codec has work to do."""

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


def configure_sdk() -> None:
    """Silence the SDK's retry warnings and skip its unused work; call it before the first client of the process.

    The native part writes coloured lines to standard error, whatever the log format. ``temporal.client`` reports the
    connection, once for each change; the journal reports the end of each step in one line.
    """
    quiet = TelemetryFilter(core_level=QUIET, other_level=QUIET)
    runtime = Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=quiet)))
    Runtime.set_default(runtime, error_if_already_set=False)
    skip_visits()
    for name in OF_STEPS:
        logging.getLogger(name).addFilter(ExpectedEnds())
