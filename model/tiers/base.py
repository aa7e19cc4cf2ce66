"""What a tier below the device stores, and what is asked of one. No tensors, no clock.

A tier keeps the bytes of blocks under names that say all they depend on. It never answers wrongly:
whatever it can't vouch for is a `TierError`, and the tokens are computed again.

Invariants:
    a record's parent was written before it, and is removed after it
    what is read is exactly what was written under that record, or nothing is
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from model.messages import TierName
from model.prefix_index import BlockHash


@dataclass(frozen=True, slots=True)
class Identity:
    """What all blocks of one folder have in common; bytes of any other are of no use."""

    fingerprint: str
    dtype: str
    block_size: int
    layout_version: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class Record:
    """One block, as it is known in every tier.

    `key` is a full block's hash, or a partial tail's key; `parent` the block's before it, None for
    a first one; `position` its place in the table, from 0; `num_tokens` its computed slots.
    """

    key: BlockHash
    parent: BlockHash | None
    position: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Hold:
    """A conversation's claim on the chain of records that ends in `tail`: what was parked under one
    of its turns. `used_at` is wall-clock seconds, `num_uses` how often it was come back to; `ttl_s`
    and `priority` are hints to `eviction`. A turn that another has gone on from is superseded: its
    chain goes first when room is needed, and serves those who go on from it again until then."""

    conversation_id: str
    turn_id: str
    tail: BlockHash
    num_tokens: int
    used_at: float
    num_uses: int = 0
    ttl_s: float = 0.0
    priority: int = 0
    is_superseded: bool = False


class TierError(Exception):
    """A tier can't do what it was asked for. It never leaves the engine: a miss with a reason."""


class TierFullError(TierError):
    """There is no room: the quota, the preallocated memory or the file system is full."""


class RecordLostError(TierError):
    """A record isn't there, or isn't what was written: truncated, flipped, swapped or foreign. The
    tier has forgotten it."""


class TierUnavailableError(TierError):
    """The medium doesn't work: no permission, an I/O error, a folder that is gone."""


class Storage(Protocol):
    """One tier's medium. Called from one thread, that of its transfers; any call may take long.

    Bytes are counted as they lie on the medium, headers, dead records and all.
    """

    name: TierName
    quota_bytes: int

    @property
    def used_bytes(self) -> int:
        """What the tier takes up now; never over the quota."""
        ...

    def record_bytes(self) -> int:
        """What one record takes up."""
        ...

    def open(self) -> list[Record]:
        """Find what an earlier process left, in no order; what can't be read is left out. Raises
        TierUnavailableError."""
        ...

    def write(self, record: Record, payload: memoryview) -> None:
        """Store a block's bytes. One that is there already stays as it is. Raises TierFullError or
        TierUnavailableError, and has stored nothing then."""
        ...

    def read(self, record: Record, into: memoryview) -> None:
        """Fill `into` with the block's bytes, verified. Raises RecordLostError or
        TierUnavailableError; `into` may hold anything then."""
        ...

    def read_all(self, records: Sequence[Record], into: Sequence[memoryview]) -> Iterator[None]:
        """As `read`, one after the other, and yield behind each. What was yielded for is right,
        whatever is raised then."""
        ...

    def remove(self, keys: Sequence[BlockHash]) -> None:
        """Give records up to make room; an unknown key is ignored. Whose bytes they were is
        forgotten, so when this returns the medium's files have none of them any more."""
        ...

    def erase(self, keys: Sequence[BlockHash]) -> None:
        """As `remove`, and when this returns nor has the medium: they are overwritten, keys and
        all, and that is on the disk."""
        ...

    def verify(self) -> Iterator[Record | None]:
        """Read everything there is now, one record a step; drop and yield it if it is damaged, else
        yield None. Other calls may come between the steps."""
        ...

    def close(self) -> None:
        """Leave the medium in order for the next process."""
        ...


class Holds(Protocol):
    """Where a tier's claims are kept, beside its records. Called from the same thread; each call
    may raise TierFullError or TierUnavailableError."""

    def put(self, hold: Hold) -> None:
        """Note a claim; the last of a turn counts."""
        ...

    def drop_turn(self, conversation_id: str, turn_id: str) -> None:
        """Forget a turn's claim."""
        ...

    def drop(self, conversation_id: str) -> None:
        """Forget a conversation, such that its id can't be found on the medium."""
        ...

    def close(self) -> None:
        """Leave the medium in order for the next process."""
        ...
