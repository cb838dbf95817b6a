"""Encrypts payloads with AES-256-GCM before they leave this process, in the format of Temporal's own samples.

See docs/howto/encrypt-payloads.md and ADR 45.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import PayloadCodec, PayloadConverter

from maestro.domain.errors import EncryptionKeyMissing
from temporal.attempts import SafeFailureConverter

ENCRYPTED = b"binary/encrypted"
KEY_ID = "encryption-key-id"
NONCE_BYTES = 12
ENCODED_FAILURE = "Encoded failure"
"""The message of a failure whose own message is encrypted; Temporal's Web UI and CLI know it."""

RawPayload = tuple[Mapping[str, bytes], bytes]
"""The metadata and the data of a payload."""


class EncryptionCodec(PayloadCodec):
    """A codec that encrypts with the first of its keys, and decrypts with all of them.

    Payloads that are not encrypted are decoded unchanged, so that workflows from before the encryption go on.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """Prepare the codec; ``keys`` are the keys of 32 bytes by their ids."""
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self._key_id = next(iter(keys))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt payloads with the first key; encrypted payloads stay as they are."""
        return [self.encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt payloads; raises ``EncryptionKeyMissing`` where no key fits."""
        return [self.decrypt(payload) for payload in payloads]

    def encrypt(self, payload: Payload) -> Payload:
        """Return the payload, encrypted as a whole: the ciphertext follows its nonce."""
        if payload.metadata.get("encoding") == ENCRYPTED:
            return payload
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._ciphers[self._key_id].encrypt(nonce, payload.SerializeToString(), None)
        return Payload(metadata={"encoding": ENCRYPTED, KEY_ID: self._key_id.encode()}, data=nonce + sealed)

    def decrypt(self, payload: Payload) -> Payload:
        """Return the payload that was encrypted; raises ``EncryptionKeyMissing`` where no key fits."""
        if payload.metadata.get("encoding") != ENCRYPTED:
            return payload
        key_id = payload.metadata.get(KEY_ID, b"").decode(errors="replace")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise EncryptionKeyMissing(
                f"A payload is encrypted with the key '{key_id}', which temporal.codec.keys does not have: add that "
                "key, after the first one if it is an old one."
            )
        try:
            plain = cipher.decrypt(payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:], None)
            return Payload.FromString(plain)
        except (InvalidTag, ValueError, DecodeError):
            raise EncryptionKeyMissing(
                f"A payload cannot be decrypted with the key '{key_id}' of temporal.codec.keys: the payload was "
                "encrypted with another key of this id, or was changed. Give each key an id of its own."
            ) from None


class EncryptedFailureConverter(SafeFailureConverter):
    """A failure converter that moves the message of a failure into a payload, which the codec encrypts."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Write an exception as its type; its causes are written in the same way."""
        super().to_failure(exception, payload_converter, failure)
        if failure.message != ENCODED_FAILURE:
            common = {"message": failure.message, "stack_trace": ""}
            failure.encoded_attributes.CopyFrom(payload_converter.to_payload(common))
            failure.message = ENCODED_FAILURE


class PayloadService:
    """Encrypts and decrypts payloads for the codec endpoint of the API."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._codec = EncryptionCodec(keys)

    def encrypt(self, payloads: Sequence[RawPayload]) -> Iterator[RawPayload]:
        """Yield the encrypted payloads."""
        return self._convert(payloads, self._codec.encrypt)

    def decrypt(self, payloads: Sequence[RawPayload]) -> Iterator[RawPayload]:
        """Yield the decrypted payloads; raises ``EncryptionKeyMissing`` where no key fits."""
        return self._convert(payloads, self._codec.decrypt)

    def _convert(self, payloads: Sequence[RawPayload], convert: Callable[[Payload], Payload]) -> Iterator[RawPayload]:
        for metadata, data in payloads:
            converted = convert(Payload(metadata=metadata, data=data))
            yield dict(converted.metadata), converted.data
