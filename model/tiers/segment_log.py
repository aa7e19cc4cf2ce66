"""The records of one folder: segments, an index of what is live in them, a quota, and compaction.

Room is made by giving up the end of the segment with the most dead records: dead ones are cut off,
a live one is first copied to the newest segment. So making room never needs more than one record's
room, and that much is kept free for it.

The calls raise OSError, and TierFullError for the quota.

Invariants:
    the files' bytes are never over the quota
    a key names at most one live record; one that is moved is written before it is cut off
    a damaged record is wiped where it is found: nobody could say later whose bytes they were
"""

import errno
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from model.prefix_index import BlockHash
from model.tiers.base import Record, TierFullError
from model.tiers.folder import FULL_ERRORS, LockedFolder
from model.tiers.records import (
    CHECKSUM_BYTES,
    HEADER_BYTES,
    Bytes,
    RecordFormat,
    record_checksum,
)
from model.tiers.segment import Segment, segment_number


@dataclass(frozen=True, slots=True)
class Place:
    """Where a live record is."""

    segment: Segment
    slot: int
    record: Record


class SegmentLog:
    """What lies in a folder, as bytes that are checked but not understood."""

    def __init__(
        self,
        folder: LockedFolder,
        record_format: RecordFormat,
        segment_header: bytes,
        *,
        segment_bytes: int,
        quota_bytes: int,
    ) -> None:
        self._folder = folder
        self._format = record_format
        self._segment_header = segment_header
        self._quota_bytes = quota_bytes
        self._slots_per_segment = max(1, segment_bytes // record_format.record_bytes)
        # A move's copy, and the segments that moves may have to begin.
        self._reserve_bytes = record_format.record_bytes + 2 * len(segment_header)
        self._index: dict[BlockHash, Place] = {}
        self._segments: dict[int, Segment] = {}
        self._unsynced: set[Segment] = set()
        self._newest: Segment | None = None
        # What a read fills beside the payload: no allocation a record.
        self._header = bytearray(HEADER_BYTES)
        self._checksum = bytearray(CHECKSUM_BYTES)

    @property
    def used_bytes(self) -> int:
        """The sizes of all segments; may be asked from any thread."""
        return sum(s.size_bytes for s in list(self._segments.values()))

    @property
    def num_live(self) -> int:
        """How many live records there are; may be asked from any thread."""
        return len(self._index)

    def places(self) -> list[Place]:
        """All live records."""
        return list(self._index.values())

    def find(self, key: BlockHash) -> Place | None:
        """Where the key's record is."""
        return self._index.get(key)

    def load(self) -> None:
        """Read all headers, no payload."""
        numbers = [segment_number(name) for name in self._folder.names()]
        for number in sorted(n for n in numbers if n is not None):
            self._load(self._segment(number))
        self._newest = self._segments[max(self._segments)] if self._segments else None
        self._cut_dead_ends()
        # The quota may have become smaller.
        while self._segments and self.used_bytes + self._reserve_bytes > self._quota_bytes:
            oldest = self._segments[min(self._segments)]
            if self._is_live(oldest, len(oldest.keys) - 1):
                self._forget(oldest, len(oldest.keys) - 1)
            self._cut_dead_end(oldest)

    def _segment(self, number: int) -> Segment:
        record_bytes = self._format.record_bytes
        return Segment(self._folder, number, self._segment_header, record_bytes)

    def _load(self, segment: Segment) -> None:
        self._segments[segment.number] = segment
        try:
            for slot, header in segment.load(self._format):
                if header.is_live:
                    self._let_win(Place(segment, slot, header.record))
        except OSError as exc:
            if exc.errno != errno.EIO:
                raise
            self.drop(segment)
        if not segment.num_live:
            self._delete(segment)

    def _let_win(self, later: Place) -> None:
        """Two live records of a key are left by a move that was cut short."""
        earlier = self._index.get(later.record.key)
        if earlier is not None:
            self._forget(earlier.segment, earlier.slot)
            earlier.segment.mark_dead([earlier.slot])
        later.segment.num_live += 1
        self._index[later.record.key] = later

    def append(self, record: Record, parts: Sequence[Bytes]) -> None:
        """Write a new record, having made room for it."""
        while self.used_bytes + self._append_bytes() + self._reserve_bytes > self._quota_bytes:
            victim = max(self._segments.values(), key=lambda s: s.num_dead, default=None)
            if victim is None or not victim.num_dead:
                raise TierFullError(f"{self._folder.path}: the quota is used up")
            self._shrink(victim)
        try:
            self._append(record, parts)
        except OSError as exc:
            # The file system may be full of what is dead.
            if exc.errno not in FULL_ERRORS or not self._cut_dead_ends():
                raise
            self._append(record, parts)

    def _append_bytes(self) -> int:
        is_room = self._newest and len(self._newest.keys) < self._slots_per_segment
        return self._format.record_bytes + (0 if is_room else len(self._segment_header))

    def _append(self, record: Record, parts: Sequence[Bytes]) -> None:
        if self.used_bytes + self._append_bytes() > self._quota_bytes:
            raise TierFullError(f"{self._folder.path}: the quota is used up")
        segment = self._writable()
        try:
            slot = segment.append(parts, record.key)
        except FileNotFoundError:
            self.drop(segment)
            segment = self._writable()
            slot = segment.append(parts, record.key)
        self._unsynced.add(segment)
        self._index[record.key] = Place(segment, slot, record)

    def _writable(self) -> Segment:
        if self._newest is None or len(self._newest.keys) >= self._slots_per_segment:
            segment = self._segment(max(self._segments, default=0) + 1)
            segment.create()
            self._newest = self._segments[segment.number] = segment
        return self._newest

    def read_all(
        self, places: Sequence[Place], payloads: Sequence[memoryview]
    ) -> Iterator[bytes | None]:
        """Fill each payload with the stored bytes, one after the other, and yield the nonce, or
        None if anything isn't what was written. The header is what `header_bytes` has until the
        next step."""
        pairs = zip(places, payloads, strict=True)
        for segment, members in groupby(pairs, key=lambda pair: pair[0].segment):
            with segment.opened() as fd:
                for place, payload in members:
                    yield self._read(fd, place, payload)

    def _read(self, fd: int, place: Place, payload: memoryview) -> bytes | None:
        if not place.segment.read(fd, place.slot, [self._header, payload, self._checksum]):
            return None
        if record_checksum(self._header, payload) != self._checksum:
            return None
        return self._format.nonce_of(self._header, place.record)

    @property
    def header_bytes(self) -> memoryview:
        """The header of the record that was read last."""
        return memoryview(self._header)

    def _shrink(self, victim: Segment) -> None:
        """Make the segment shorter by one record or more."""
        if victim is self._newest:
            self._newest = None
        last = len(victim.keys) - 1
        if self._is_live(victim, last):
            self._move(self._index[self._key(victim, last)])
        self._cut_dead_end(victim)

    def _move(self, place: Place) -> None:
        payload = memoryview(bytearray(self._format.payload_bytes))
        try:
            is_right = next(self.read_all([place], [payload])) is not None
        except OSError as exc:
            if exc.errno not in (errno.EIO, errno.ENOENT):
                raise
            is_right = False
        if is_right:
            self._append(place.record, [self._header, payload, self._checksum])
            place.segment.num_live -= 1
        else:
            self.lose(place)

    def _cut_dead_ends(self) -> bool:
        before = self.used_bytes
        for segment in list(self._segments.values()):
            self._cut_dead_end(segment)
        return self.used_bytes < before

    def _cut_dead_end(self, segment: Segment) -> None:
        num_slots = len(segment.keys)
        while num_slots and not self._is_live(segment, num_slots - 1):
            num_slots -= 1
        if not num_slots:
            self._delete(segment)
        elif num_slots < len(segment.keys):
            try:
                segment.cut(num_slots)
            except FileNotFoundError:
                self.drop(segment)

    def bury(self, keys: Iterable[BlockHash]) -> None:
        """Mark the keys' records dead; a segment that has no live one left is deleted."""
        places = [self._index[key] for key in dict.fromkeys(keys) if key in self._index]
        for place in places:
            self._forget(place.segment, place.slot)
        self._change(((p.segment, p.slot) for p in places), Segment.mark_dead)

    def wipe(self, keys: Iterable[BlockHash]) -> None:
        """Overwrite all that the segments hold under the keys, dead records too."""
        doomed = set(keys)
        slots = [
            (segment, slot)
            for segment in self._segments.values()
            for slot, key in enumerate(segment.keys)
            if key in doomed
        ]
        for segment, slot in slots:
            if self._is_live(segment, slot):
                self._forget(segment, slot)
        self._change(slots, Segment.wipe)

    def _change(
        self,
        slots: Iterable[tuple[Segment, int]],
        change: Callable[[Segment, Sequence[int]], None],
    ) -> None:
        """Change slots on the medium that are in the index no more."""
        by_segment: dict[Segment, list[int]] = defaultdict(list)
        for segment, slot in slots:
            by_segment[segment].append(slot)
        for segment, changed in by_segment.items():
            try:
                change(segment, changed)
            except FileNotFoundError:
                self.drop(segment)
            if not segment.num_live:
                self._delete(segment)

    def lose(self, place: Place) -> None:
        """Forget a damaged record, and wipe what is there of it if that is possible."""
        self._forget(place.segment, place.slot)
        with suppress(OSError):
            self._change([(place.segment, place.slot)], Segment.wipe)

    def drop(self, segment: Segment) -> None:
        """Forget a segment whose file is gone."""
        for slot in range(len(segment.keys)):
            if self._is_live(segment, slot):
                self._forget(segment, slot)
        self._delete(segment)

    def sync(self) -> None:
        """Put everything on the disk."""
        while self._unsynced:
            with suppress(FileNotFoundError):
                next(iter(self._unsynced)).sync()
            self._unsynced.pop()
        self._folder.sync()

    def _forget(self, segment: Segment, slot: int) -> None:
        del self._index[self._key(segment, slot)]
        segment.num_live -= 1

    def _delete(self, segment: Segment) -> None:
        segment.delete()
        self._segments.pop(segment.number, None)
        self._unsynced.discard(segment)
        if segment is self._newest:
            self._newest = None

    def _key(self, segment: Segment, slot: int) -> BlockHash:
        key = segment.keys[slot]
        assert key is not None
        return key

    def _is_live(self, segment: Segment, slot: int) -> bool:
        key = segment.keys[slot]
        place = self._index.get(key) if key is not None else None
        return place is not None and place.segment is segment and place.slot == slot
