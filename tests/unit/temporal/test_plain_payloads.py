"""The SDK's private functions are replaced for the version that was looked at, and for no other."""

import dataclasses
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import pytest
from structlog.testing import capture_logs
from temporalio.api.common.v1 import Payload
from temporalio.bridge import worker as bridge
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.worker._workflow import _CommandAwareDataConverter

from temporal import sdk
from temporal.client import DATA_CONVERTER
from temporal.sdk import SDK_VERSION, skip_payload_visits


class Counting(PayloadCodec):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        self.asked += 1
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the SDK's functions back after the test."""
    monkeypatch.setattr(bridge, "decode_activation", bridge.decode_activation)
    monkeypatch.setattr(bridge, "encode_completion", bridge.encode_completion)
    monkeypatch.setattr(_CommandAwareDataConverter, "create", staticmethod(_CommandAwareDataConverter.create))


def completion() -> WorkflowActivationCompletion:
    """Return the end of a workflow with one payload."""
    ended = WorkflowActivationCompletion()
    ended.successful.commands.add().complete_workflow_execution.result.data = b"1"
    return ended


async def encode(converter: DataConverter) -> Any:
    return await bridge.encode_completion(completion(), converter, encode_headers=True, storage_concurrency_limit=3)


def test_the_installed_sdk_is_the_one_whose_functions_are_replaced(own: None) -> None:
    assert version("temporalio") == SDK_VERSION
    with capture_logs() as logs:
        assert skip_payload_visits()
    assert logs == []


@pytest.mark.usefixtures("own")
async def test_plain_payloads_are_not_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_payload_visits()
    monkeypatch.setattr(bridge, "CommandAwarePayloadVisitor", None)
    assert (await encode(DATA_CONVERTER)).payload_count == 0
    created = _CommandAwareDataConverter.create(
        instance=None,  # type: ignore[arg-type]
        context_free_dc=DATA_CONVERTER,
        workflow_context_dc=DATA_CONVERTER,
        workflow_context=None,  # type: ignore[arg-type]
    )
    assert created is DATA_CONVERTER


@pytest.mark.usefixtures("own")
async def test_a_codec_sees_every_payload() -> None:
    skip_payload_visits()
    codec = Counting()
    await encode(dataclasses.replace(DATA_CONVERTER, payload_codec=codec))
    assert codec.asked == 1


@pytest.mark.usefixtures("own")
def test_another_version_of_the_sdk_does_its_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "version", lambda _: "1.36.0")
    before = bridge.decode_activation
    with capture_logs() as logs:
        assert not skip_payload_visits()
    assert bridge.decode_activation is before
    assert [line["event"] for line in logs] == ["sdk.unknown"]
