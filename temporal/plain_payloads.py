"""Skips the SDK's visits to every payload of an activation, which only a codec or external storage needs."""

import functools
import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import structlog
from temporalio.bridge import worker as bridge
from temporalio.converter import DataConverter
from temporalio.converter._extstore import StorageOperationMetrics
from temporalio.worker._workflow import _CommandAwareDataConverter

log = structlog.get_logger(__name__)

SDK_VERSION = "1.35.0"
"""The version whose private functions are replaced; with any other version the SDK does all its own work."""

PARAMETERS = {
    "decode_activation": ("activation", "data_converter", "decode_headers", "storage_concurrency_limit"),
    "encode_completion": ("completion", "data_converter", "encode_headers", "storage_concurrency_limit"),
    "create": ("instance", "context_free_dc", "workflow_context_dc", "workflow_context"),
}
"""The replaced functions by their names."""


def skip_visits() -> bool:
    """Replace the SDK's functions for the rest of the process; false when they are not the known ones."""
    functions = (bridge.decode_activation, bridge.encode_completion, _CommandAwareDataConverter.create)
    if not is_known(version("temporalio"), functions):
        log.warning("sdk.unknown", version=version("temporalio"), known=SDK_VERSION)
        return False
    bridge.decode_activation = _skipping(bridge.decode_activation)
    bridge.encode_completion = _skipping(bridge.encode_completion)
    _CommandAwareDataConverter.create = staticmethod(_sharing(_CommandAwareDataConverter.create))  # type: ignore[method-assign]
    return True


def is_known(sdk_version: str, functions: tuple[Callable[..., Any], ...]) -> bool:
    """Say whether the functions of this version are those that may be replaced."""
    found = {function.__name__: tuple(inspect.signature(function).parameters) for function in functions}
    return sdk_version == SDK_VERSION and found == PARAMETERS


def _skipping(visit: Callable[..., Any]) -> Callable[..., Any]:
    """Visit the payloads of an activation or a completion only where there is something to do with them."""

    @functools.wraps(visit)
    async def visit_unless_plain(message: Any, data_converter: DataConverter, *args: Any, **kwargs: Any) -> Any:
        if _is_plain(data_converter):
            return StorageOperationMetrics()
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
