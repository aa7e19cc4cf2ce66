"""Encryption of records: keys from text, and nothing opened with another."""

import base64
import sys

import pytest

from model.tiers.base import RecordLostError, TierUnavailableError
from model.tiers.cipher import Cipher

KEY = bytes(range(200, 232))
NONCE = bytes(12)


def unseal(cipher, sealed, nonce=NONCE, header=b"header", num_bytes=7):
    into = bytearray(num_bytes)
    cipher.unseal(nonce, sealed, header, memoryview(into))
    return bytes(into)


@pytest.mark.parametrize(
    "text",
    [
        KEY.hex(),
        KEY.hex().upper(),
        base64.b64encode(KEY).decode(),
        base64.urlsafe_b64encode(KEY).decode(),
        f" {KEY.hex()}\n",
    ],
)
def test_a_key_may_be_hex_or_base64(text):
    assert Cipher.from_text(text).name == Cipher(KEY).name


@pytest.mark.parametrize(
    "text", ["", "secret", "zz" * 32, "é" * 44, KEY[:16].hex(), base64.b64encode(KEY[:31]).decode()]
)
def test_another_text_is_refused_without_being_repeated(text):
    with pytest.raises(TierUnavailableError, match="encryption key") as refused:
        Cipher.from_text(text)

    assert not text or text not in str(refused.value)


def test_without_the_package_the_refusal_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(TierUnavailableError, match=r"splice-server\[encryption\]"):
        Cipher(KEY)


def test_what_was_sealed_is_unsealed():
    cipher = Cipher(KEY)
    sealed = cipher.seal(NONCE, b"payload", b"header")

    assert len(sealed) == 7 + cipher.overhead_bytes
    assert b"payload" not in sealed
    assert unseal(cipher, sealed) == b"payload"


def test_nothing_is_unsealed_with_anything_else_changed():
    cipher = Cipher(KEY)
    sealed = cipher.seal(NONCE, b"payload", b"header")
    attempts = [
        lambda: unseal(Cipher(bytes(32)), sealed),
        lambda: unseal(cipher, sealed, nonce=b"x" * 12),
        lambda: unseal(cipher, sealed, header=b"Header"),
        lambda: unseal(cipher, bytes([sealed[0] ^ 1]) + sealed[1:]),
    ]

    for attempt in attempts:
        with pytest.raises(RecordLostError):
            attempt()


def test_keys_have_names_that_do_not_tell_them():
    assert Cipher(KEY).name != Cipher(bytes(32)).name
    assert KEY.hex()[:8] not in Cipher(KEY).name


def test_nonces_differ():
    cipher = Cipher(KEY)

    assert len({cipher.nonce() for _ in range(100)}) == 100
