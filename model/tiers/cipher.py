"""Encryption of records at rest: AES-256-GCM under one key that is given from outside.

What isn't hidden: how many records there are and how long, their keys (hashes salted by owner, of
which nothing can be read), how they hang together, the model's fingerprint, and the list of holds.
A nonce is drawn at random for each record, so one key should write fewer than 2**32 of them.
"""

import base64
import binascii
import hashlib
import os

from model.tiers.base import RecordLostError, TierUnavailableError
from model.tiers.records import NONCE_BYTES, Bytes

KEY_BYTES = 32


class Cipher:
    """Seals records and opens them again. `name` tells keys apart without telling them."""

    overhead_bytes = 16

    def __init__(self, key: bytes) -> None:
        """Raises TierUnavailableError without the package."""
        try:
            # Imported here: an optional package.
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as exc:
            raise TierUnavailableError(
                "encryption needs the package cryptography: pip install 'splice-server[encryption]'"
            ) from exc
        if len(key) != KEY_BYTES:
            raise TierUnavailableError(f"the encryption key has {len(key)} bytes and not 32")
        self._aes = AESGCM(key)
        self._invalid_tag = InvalidTag
        self.name = "aes-256-gcm:" + hashlib.sha256(b"splice key name:" + key).hexdigest()[:16]

    @classmethod
    def from_text(cls, text: str) -> "Cipher":
        """From a key of 32 bytes in base64 or hex. Raises TierUnavailableError, never naming it."""
        return cls(_key(text.strip()))

    def nonce(self) -> bytes:
        """A new record's."""
        return os.urandom(NONCE_BYTES)

    def seal(self, nonce: bytes, payload: Bytes, header: Bytes) -> bytes:
        """The payload encrypted, `overhead_bytes` longer, and bound to its header."""
        return bytes(self._aes.encrypt(nonce, payload, header))

    def unseal(self, nonce: bytes, sealed: Bytes, header: Bytes, into: memoryview) -> None:
        """Decrypt into `into`. Raises RecordLostError if key, header or bytes are others."""
        try:
            self._aes.decrypt_into(nonce, sealed, header, into)
        except self._invalid_tag as exc:
            raise RecordLostError("a record can't be decrypted with this key") from exc


def _key(text: str) -> bytes:
    try:
        if len(text) == 2 * KEY_BYTES:
            return bytes.fromhex(text)
        return base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)
    except (ValueError, binascii.Error):
        raise TierUnavailableError(
            "the encryption key is neither base64 nor hex; make one with: openssl rand -base64 32"
        ) from None
