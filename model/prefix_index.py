"""Which block holds which tokens: chained block hashes, and the device blocks they name.

The hash of a block covers every token before it and everything its bytes depend on (model
fingerprint, dtype, block size, layout version) and the salt, so equal hashes mean equal contents
and no owner can find another's blocks. SHA-256, never Python's `hash`: blocks outlive processes.

Invariants:
    a hash names at most one block, a block has at most one hash
    only full, computed, committed blocks are registered (kept by `cache_manager`)
"""

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from typing import NewType

BlockHash = NewType("BlockHash", bytes)

LAYOUT_VERSION = 1
"""Goes up whenever the order of bytes inside a block changes."""


class BlockHasher:
    """Chains hashes for one model and one block size."""

    def __init__(self, fingerprint: str, dtype: str, block_size: int) -> None:
        self.fingerprint = fingerprint
        self.block_size = block_size
        identity = f"{fingerprint}\n{dtype}\n{block_size}\n{LAYOUT_VERSION}"
        self._root = _digest(b"", b"model", identity.encode())

    def extend(
        self, hashes: list[BlockHash], token_ids: Sequence[int], salt: str, num_public: int = 0
    ) -> None:
        """Append the hashes of the full blocks of `token_ids` that `hashes` lacks.

        The salt enters before the first block that isn't wholly among the first `num_public`
        tokens, so everybody's hashes agree up to there and nobody's behind.
        """
        first, end = len(hashes), len(token_ids) // self.block_size
        # One conversion for all: a long conversation that comes back is hashed while it waits.
        ids = array("i", token_ids[first * self.block_size : end * self.block_size]).tobytes()
        size = len(ids) // max(1, end - first)
        parent, num_unsalted = hashes[-1] if hashes else self._root, num_public // self.block_size
        for start in range(0, len(ids), size or 1):
            if len(hashes) == num_unsalted:
                parent = _digest(parent, b"salt", salt.encode())
            parent = _digest(parent, b"ids", ids[start : start + size])
            hashes.append(parent)

    def tail_key(
        self, hashes: Sequence[BlockHash], tail_ids: Sequence[int], salt: str, num_public: int = 0
    ) -> BlockHash:
        """What a partial block behind the full ones is called in the tiers. It is never in the
        prefix index, and no full block's hash: another kind of thing is digested."""
        parent = self._parent(hashes, salt, num_public)
        return _digest(parent, b"partial", array("i", tail_ids).tobytes())

    def _parent(self, hashes: Sequence[BlockHash], salt: str, num_public: int) -> bytes:
        parent = hashes[-1] if hashes else self._root
        if len(hashes) == num_public // self.block_size:
            return _digest(parent, b"salt", salt.encode())
        return parent


def _digest(parent: bytes, kind: bytes, data: bytes) -> BlockHash:
    """Parents have one length and kinds differ, so no two inputs run together."""
    return BlockHash(hashlib.sha256(parent + kind + b":" + data).digest())


class PrefixIndex:
    """Hash → device block, both ways."""

    def __init__(self) -> None:
        self._block_by_hash: dict[BlockHash, int] = {}
        self._hash_by_block: dict[int, BlockHash] = {}

    def __len__(self) -> int:
        return len(self._block_by_hash)

    def hash_of(self, block_id: int) -> BlockHash | None:
        """The block's hash, if its contents are known."""
        return self._hash_by_block.get(block_id)

    def has(self, hashes: Sequence[BlockHash]) -> bool:
        """Whether every one of the hashes names a block, and there is one."""
        return bool(hashes) and all(h in self._block_by_hash for h in hashes)

    def register(self, block_hash: BlockHash, block_id: int) -> None:
        """Name a block. A second block with the same contents stays unnamed: tables that already
        point at it keep it, and it is the first to be reused afterwards."""
        if block_hash not in self._block_by_hash and block_id not in self._hash_by_block:
            self._block_by_hash[block_hash] = block_id
            self._hash_by_block[block_id] = block_hash

    def forget(self, block_id: int) -> bool:
        """The block's contents are about to change; whether they had a name."""
        block_hash = self._hash_by_block.pop(block_id, None)
        if block_hash is None:
            return False
        del self._block_by_hash[block_hash]
        return True

    def longest_chain(self, hashes: Iterable[BlockHash]) -> list[int]:
        """The blocks of the longest known prefix of `hashes`."""
        blocks: list[int] = []
        for block_hash in hashes:
            block_id = self._block_by_hash.get(block_hash)
            if block_id is None:
                break
            blocks.append(block_id)
        return blocks

    def check(self) -> None:
        """Both directions agree; AssertionError if not."""
        assert len(self._block_by_hash) == len(self._hash_by_block)
        for block_id, block_hash in self._hash_by_block.items():
            assert self._block_by_hash[block_hash] == block_id, f"block {block_id} is misnamed"
