"""Small records for the tests of tiers, whose bytes can be recognised wherever they are."""

import hashlib
from pathlib import Path

from model.prefix_index import BlockHash
from model.tiers.base import Identity, Record, TierFullError

BLOCK_BYTES = 1000
IDENTITY = Identity("fingerprint-a", "bfloat16", 16, 1, BLOCK_BYTES)
OTHER_IDENTITY = Identity("fingerprint-b", "bfloat16", 16, 1, BLOCK_BYTES)


def record(number: int, parent: int | None = None) -> Record:
    """The record called `number`."""
    parent_key = None if parent is None else key(parent)
    return Record(key(number), parent_key, position=number, num_tokens=16)


def key(number: int) -> BlockHash:
    return BlockHash(hashlib.sha256(b"key %d" % number).digest())


def payload(number: int) -> memoryview:
    """The bytes that belong to `record(number)`, all blocks' different everywhere."""
    return memoryview(hashlib.shake_256(b"payload %d" % number).digest(BLOCK_BYTES))


def chain(length: int) -> list[Record]:
    return [record(i, i - 1 if i else None) for i in range(length)]


def read_back(storage, number: int, parent: int | None = None) -> bytes:
    into = bytearray(BLOCK_BYTES)
    storage.read(record(number, parent), memoryview(into))
    return bytes(into)


def is_anywhere(folder: Path, needle: bytes) -> bool:
    """Whether the bytes are in any file below the folder."""
    return any(needle in f.read_bytes() for f in folder.rglob("*") if f.is_file())


def file_bytes(folder: Path) -> int:
    """The segments' bytes, as they lie there."""
    return sum(f.stat().st_size for f in folder.rglob("*.kv"))


def fill(storage, numbers) -> None:
    """Write the records of these numbers."""
    for number in numbers:
        storage.write(record(number), payload(number))


def fill_up(storage) -> int:
    """Write records 0, 1, … until it is full; how many there are."""
    for number in range(1000):
        try:
            storage.write(record(number), payload(number))
        except TierFullError:
            return number
    raise AssertionError("it is never full")
