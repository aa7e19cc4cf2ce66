"""How a block lies on a medium: a header that says what it is, its bytes, and a checksum over both.

    state 1 | magic 3 | identity 16 | key 32 | parent 32 | position 4 | num_tokens 4 | length 4
    | has parent 1 | sealed 1 | 0 2 | nonce 12 | checksum of the header 16      (little-endian)

The state byte alone changes after a record was written, so it is first and in no checksum. Its
values differ in four bits at least.

Invariants:
    all records of an identity are equally long
    a header is believed only if its checksum, its identity and its length are right
"""

import hashlib
import json
import struct
from dataclasses import asdict, dataclass

import xxhash

from model.prefix_index import BlockHash
from model.tiers.base import Identity, Record

FORMAT_VERSION = 1
"""Goes up whenever a file, a header or a record is laid out anew."""

LIVE, DEAD, ERASED = b"\xa5", b"\x5a", b"\xc3"
CHECKSUM_BYTES = 16
KEY_BYTES = 32
NONCE_BYTES = 12
NO_NONCE = bytes(NONCE_BYTES)

Bytes = bytes | bytearray | memoryview

_FIELDS = struct.Struct("<c3s16s32s32sIIIBBxx12s")
_MAGIC = b"KVR"
_NONCE = slice(_FIELDS.size - NONCE_BYTES, _FIELDS.size)
HEADER_BYTES = _FIELDS.size + CHECKSUM_BYTES


@dataclass(frozen=True, slots=True)
class Header:
    """What a record says of itself."""

    record: Record
    is_live: bool


class RecordFormat:
    """Headers and checksums of the records of one identity, encrypted ones or not."""

    def __init__(self, identity: Identity, payload_bytes: int, *, is_sealed: bool = False) -> None:
        self._identity = bytes.fromhex(identity_digest(identity))[:16]
        self.payload_bytes = payload_bytes
        self._is_sealed = is_sealed

    @property
    def record_bytes(self) -> int:
        """Header, payload and checksum."""
        return HEADER_BYTES + self.payload_bytes + CHECKSUM_BYTES

    def header(self, record: Record, nonce: bytes = NO_NONCE) -> bytes:
        """The header of a live record."""
        assert len(record.key) == KEY_BYTES
        fields = _FIELDS.pack(
            LIVE,
            _MAGIC,
            self._identity,
            record.key,
            record.parent or b"",
            record.position,
            record.num_tokens,
            self.payload_bytes,
            record.parent is not None,
            self._is_sealed,
            nonce,
        )
        return fields + checksum(fields[1:])

    def nonce_of(self, header: Bytes, record: Record) -> bytes | None:
        """The nonce, if all else is as `record`'s header is written. Quicker than `parse`."""
        nonce = bytes(header[_NONCE])
        return nonce if header == self.header(record, nonce) else None

    def parse(self, header: Bytes) -> Header | None:
        """What the header says, if it is whole and of this format."""
        fields = memoryview(header)[: _FIELDS.size]
        if checksum(fields[1:]) != bytes(header[_FIELDS.size :]):
            return None
        state, magic, identity, key, parent, *numbers, _ = _FIELDS.unpack(fields)
        position, num_tokens, length, has_parent, is_sealed = numbers
        ours = (_MAGIC, self._identity, self.payload_bytes, self._is_sealed)
        if (magic, identity, length, is_sealed) != ours:
            return None
        known_parent = BlockHash(parent) if has_parent else None
        record = Record(BlockHash(key), known_parent, position, num_tokens)
        return Header(record, state == LIVE)


def record_checksum(header: Bytes, payload: Bytes) -> bytes:
    """The checksum that ends a record: over its payload and all of its header but the state."""
    return checksum_with(header, checksum(payload))


def checksum_with(header: Bytes, payload_checksum: bytes) -> bytes:
    """As `record_checksum`, where the payload's own is known."""
    # That of the payload is taken in one go, which is quicker than a stream of header and payload.
    return checksum(bytes(header[1:]) + payload_checksum)


def checksum(data: Bytes) -> bytes:
    """xxh3_128, which finds accidents and no forgeries."""
    return xxhash.xxh3_128_digest(data)


def identity_text(identity: Identity, cipher: str | None = None) -> bytes:
    """The identity written out in full, with the format and what its records are sealed with."""
    fields = {"format": FORMAT_VERSION, **asdict(identity)}
    return json.dumps(fields | {"cipher": cipher}, sort_keys=True).encode()


def identity_digest(identity: Identity) -> str:
    """A name for the identity in this format, as hex."""
    return hashlib.sha256(identity_text(identity)).hexdigest()


def parse_identity(text: Bytes) -> Identity | None:
    """The identity that `identity_text` wrote out; None for any other text."""
    try:
        fields = json.loads(bytes(text))
        return Identity(**{k: v for k, v in fields.items() if k not in ("format", "cipher")})
    except (ValueError, TypeError, AttributeError):
        return None
