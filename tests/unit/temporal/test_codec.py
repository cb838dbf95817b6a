"""The encryption of payloads: what is encrypted, by which key, and what an unknown key says."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ActivityError, ApplicationError

from maestro.domain.errors import ConfigurationError, EncryptionKeyMissing
from maestro.domain.jobs.job import StepRef
from maestro.settings import load
from maestro.settings.addresses import temporal_endpoint
from temporal.client import DATA_CONVERTER, data_converter
from temporal.codec import EncryptionCodec
from temporal.endpoint import Endpoint

OLD, NEW = os.urandom(32), os.urandom(32)
REF = StepRef(job_id="message-planted", step="route")


def converter(**keys: bytes) -> Any:
    """Return the converter of a process with these keys, the first of which encrypts."""
    return data_converter(Endpoint("127.0.0.1:7233", "default", codec_keys=keys))


def test_without_keys_no_codec_has_work_to_do() -> None:
    assert converter() is DATA_CONVERTER
    assert DATA_CONVERTER.payload_codec is None


async def test_a_payload_is_encrypted_in_the_format_of_temporals_samples() -> None:
    [payload] = await converter(new=NEW).encode([REF])
    assert payload.metadata == {"encoding": b"binary/encrypted", "encryption-key-id": b"new"}
    assert b"planted" not in payload.SerializeToString()
    plain = Payload.FromString(AESGCM(NEW).decrypt(payload.data[:12], payload.data[12:], None))
    assert plain.metadata["encoding"] == b"json/plain"
    assert b"planted" in plain.data
    assert await converter(new=NEW).decode([payload], [StepRef]) == [REF]


async def test_every_payload_has_a_nonce_of_its_own() -> None:
    payloads = await converter(new=NEW).encode([REF] * 100)
    assert len({payload.data[:12] for payload in payloads}) == 100


async def test_all_keys_decrypt_and_the_first_encrypts() -> None:
    rotated = converter(new=NEW, old=OLD)
    of_before = await converter(old=OLD).encode([REF])
    assert await rotated.decode(of_before, [StepRef]) == [REF]
    [payload] = await rotated.encode([REF])
    assert payload.metadata["encryption-key-id"] == b"new"


async def test_payloads_from_before_the_encryption_are_decoded() -> None:
    plain = await DATA_CONVERTER.encode([REF])
    assert await converter(new=NEW).decode(plain, [StepRef]) == [REF]


async def test_an_encrypted_payload_is_not_encrypted_again() -> None:
    codec = EncryptionCodec({"new": NEW})
    once = await codec.encode(await DATA_CONVERTER.encode([REF]))
    assert await codec.encode(once) == once


async def test_an_unknown_key_is_named() -> None:
    encrypted = await converter(old=OLD).encode([REF])
    with pytest.raises(EncryptionKeyMissing, match=r"key 'old', which temporal\.codec\.keys does not have"):
        await converter(new=NEW).decode(encrypted, [StepRef])
    with pytest.raises(EncryptionKeyMissing, match=r"key 'old', and temporal\.codec\.keys is empty"):
        await DATA_CONVERTER.decode(encrypted, [StepRef])


@pytest.mark.parametrize("change", [b"", b"short", b"x" * 40])
async def test_another_key_of_the_same_id_and_a_changed_payload_are_refused(change: bytes) -> None:
    [payload] = await converter(old=OLD).encode([REF])
    with pytest.raises(EncryptionKeyMissing, match="another key of this id, or was changed"):
        await converter(old=NEW).decode([payload], [StepRef])
    payload.data = change
    with pytest.raises(EncryptionKeyMissing, match="another key of this id, or was changed"):
        await converter(old=OLD).decode([payload], [StepRef])


async def test_failures_are_encrypted_with_their_causes() -> None:
    error = ApplicationError("planted", "planted-detail", type="Refused")
    error.__cause__ = ActivityError(
        "planted",
        scheduled_event_id=1,
        started_event_id=1,
        identity="1",
        activity_type="answer",
        activity_id="1",
        retry_state=None,
    )
    encrypted, failure = converter(new=NEW), Failure()
    await encrypted.encode_failure(error.__cause__, failure)
    assert b"planted" not in failure.SerializeToString()
    again = await encrypted.decode_failure(failure)
    assert (type(again), again.message) == (ActivityError, "planted")
    refused = Failure()
    await encrypted.encode_failure(ConfigurationError("planted"), refused)
    assert b"wrong" not in refused.SerializeToString()
    assert refused.application_failure_info.type == "ConfigurationError"
    assert str(await encrypted.decode_failure(refused)) == "ConfigurationError: The configuration is wrong."


# Settings


def endpoint_of(folder: Path, keys: object, **environment: str) -> Endpoint:
    """Return the endpoint of a configuration with these keys."""
    file = folder / "maestro.json"
    file.write_text(json.dumps({"temporal": {"codec": {"keys": keys}}}))
    return temporal_endpoint(load(file, environment, {}).settings)


def test_keys_are_references_in_order(tmp_path: Path) -> None:
    (tmp_path / "new.key").write_text(base64.b64encode(NEW).decode() + "\n")
    keys = [{"id": "new", "key": "file:new.key"}, {"id": "old", "key": "env:OLD_KEY"}]
    endpoint = endpoint_of(tmp_path, keys, OLD_KEY=base64.b64encode(OLD).decode())
    assert list(endpoint.codec_keys.items()) == [("new", NEW), ("old", OLD)]
    assert base64.b64encode(OLD).decode() not in repr(endpoint)


def test_without_the_setting_there_is_no_key(tmp_path: Path) -> None:
    assert endpoint_of(tmp_path, []).codec_keys == {}


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ([{"id": "a", "key": "env:GONE"}], "GONE"),
        ([{"id": "a", "key": base64.b64encode(b"x" * 16).decode()}], "the key has 16 bytes, AES-256 needs 32"),
        ([{"id": "a", "key": "not base64!"}], "make a key with `openssl rand -base64 32`"),
        ([{"id": "a", "key": ""}], "the key has 0 bytes"),
        ([{"id": "a"}], "is missing"),
        ([{"key": base64.b64encode(NEW).decode()}], "is missing"),
        ([{"id": "a", "key": base64.b64encode(NEW).decode()}] * 2, "two keys have the id a"),
    ],
)
def test_a_wrong_key_is_named_without_its_value(keys: list[dict[str, str]], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        endpoint_of(tmp_path, keys)
    assert problem in str(refused.value)
    assert "temporal.codec.keys" in str(refused.value)
    assert all(entry["key"] not in str(refused.value) for entry in keys if len(entry.get("key", "")) > 8)
