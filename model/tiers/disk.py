"""The disk tier: records in append-only segment files under a quota.

Invariants:
    one process uses an identity's folder at a time
    bytes are given out only if key, parent, position, tokens, identity and checksum are right
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from model.messages import TierName
from model.prefix_index import BlockHash
from model.tiers.base import (
    Identity,
    Record,
    RecordLostError,
    TierFullError,
    TierUnavailableError,
)
from model.tiers.cipher import Cipher
from model.tiers.folder import LockedFolder, identity_folder, medium_errors
from model.tiers.records import NO_NONCE, Bytes, RecordFormat, record_checksum
from model.tiers.segment import segment_header
from model.tiers.segment_log import Place, SegmentLog

SEGMENT_BYTES = 64 << 20


class DiskStorage:
    """Blocks in files below `folder`; see `tiers.base.Storage` for what is asked of it.

    Before `open` and after `close` it holds nothing.
    """

    name = TierName.DISK

    def __init__(
        self,
        folder: Path,
        identity: Identity,
        quota_bytes: int,
        segment_bytes: int = SEGMENT_BYTES,
        cipher: Cipher | None = None,
    ) -> None:
        self.quota_bytes = quota_bytes
        self.path = identity_folder(folder, identity)
        self._root, self._identity = folder, identity
        self._block_bytes = identity.block_bytes
        self._segment_bytes = segment_bytes
        self._cipher = cipher
        stored_bytes = identity.block_bytes + (cipher.overhead_bytes if cipher else 0)
        self._format = RecordFormat(identity, stored_bytes, is_sealed=cipher is not None)
        self._segment_header = segment_header(identity, cipher.name if cipher else None)
        self._sealed = memoryview(bytearray(stored_bytes if cipher else 0))
        self._folder: LockedFolder | None = None
        self._open_log: SegmentLog | None = None

    @property
    def used_bytes(self) -> int:
        """The sizes of all segments; may be asked from any thread."""
        log = self._open_log
        return log.used_bytes if log else 0

    @property
    def live_bytes(self) -> int:
        """What the records take up that can be read; of all beyond it room can be made. May be
        asked from any thread."""
        log = self._open_log
        return log.num_live * self.record_bytes() if log else 0

    def record_bytes(self) -> int:
        """What one record takes up in its segment."""
        return self._format.record_bytes

    @property
    def _log(self) -> SegmentLog:
        assert self._open_log is not None, "the storage isn't open"
        return self._open_log

    def open(self) -> list[Record]:
        """Take the folder and read all headers, no payload; a torn end is cut off."""
        assert self._folder is None, "the storage is open"
        self._folder = LockedFolder(self._root, self._identity)
        log = SegmentLog(
            self._folder,
            self._format,
            self._segment_header,
            segment_bytes=self._segment_bytes,
            quota_bytes=self.quota_bytes,
        )
        try:
            with medium_errors(self.path):
                log.load()
        except TierFullError as exc:
            self._let_go()
            raise TierUnavailableError(str(exc)) from exc
        except BaseException:
            self._let_go()
            raise
        self._open_log = log
        return [place.record for place in log.places()]

    def write(self, record: Record, payload: memoryview) -> None:
        """Append a record, having made room for it. It outlives the process, but a loss of power
        only after `close`."""
        assert payload.nbytes == self._block_bytes
        if self._log.find(record.key) is not None:
            return
        nonce = self._cipher.nonce() if self._cipher else NO_NONCE
        header = self._format.header(record, nonce)
        stored: Bytes = payload.cast("B")
        if self._cipher:
            stored = self._cipher.seal(nonce, stored, header[1:])
        with medium_errors(self.path):
            self._log.append(record, [header, stored, record_checksum(header, stored)])

    def read(self, record: Record, into: memoryview) -> None:
        """Read header, payload and checksum in one call, the payload where it is wanted."""
        for _ in self.read_all([record], [into]):
            pass

    def read_all(self, records: Sequence[Record], into: Sequence[memoryview]) -> Iterator[None]:
        """A segment is opened once for those of its records that follow each other."""
        buffers = [buffer.cast("B") for buffer in into]
        assert all(buffer.nbytes == self._block_bytes for buffer in buffers)
        places = self._places_of(records)
        stored = [self._sealed] * len(places) if self._cipher else buffers
        num_read = 0
        with medium_errors(self.path):
            try:
                for nonce in self._log.read_all(places, stored[: len(places)]):
                    place, record, buffer = places[num_read], records[num_read], buffers[num_read]
                    self._admit(place, record, nonce, buffer)
                    num_read += 1
                    yield
            except FileNotFoundError as exc:
                self._log.drop(places[num_read].segment)
                raise RecordLostError(f"{self.path}: a segment is gone") from exc
        if num_read < len(records):
            raise RecordLostError("there is no such record")

    def _places_of(self, records: Sequence[Record]) -> list[Place]:
        """Where they are, up to the first that isn't there."""
        places: list[Place] = []
        for record in records:
            if (place := self._log.find(record.key)) is None:
                break
            places.append(place)
        return places

    def _admit(self, place: Place, record: Record, nonce: bytes | None, into: memoryview) -> None:
        """Check and unseal what was read last."""
        try:
            if nonce is None or place.record != record:
                raise RecordLostError(f"{self.path}: a record isn't what was written")
            if self._cipher:
                bound_to = self._log.header_bytes[1:]
                self._cipher.unseal(nonce, self._sealed, bound_to, into)
        except RecordLostError:
            self._log.lose(place)
            raise

    def remove(self, keys: Sequence[BlockHash]) -> None:
        """Mark the records dead, and let go of their bytes. A segment without live ones is
        deleted; the places of others are used for room when it is needed."""
        with medium_errors(self.path):
            self._log.bury(keys)

    def erase(self, keys: Sequence[BlockHash]) -> None:
        """Overwrite every copy through to the disk, and what else is there of dead ones.

        What file system and device keep of bytes that were cut off, deleted or overwritten is out
        of reach; encryption is what helps against that. After a TierUnavailableError call again.
        """
        with medium_errors(self.path):
            self._log.wipe(keys)

    def verify(self) -> Iterator[Record | None]:
        """Read every record."""
        into = memoryview(bytearray(self._block_bytes))
        for place in self._log.places():
            if self._log.find(place.record.key) is None:
                continue  # it was given up since
            try:
                self.read(place.record, into)
            except RecordLostError:
                yield place.record
            else:
                yield None

    def close(self) -> None:
        """Put everything on the disk and let go of the folder, that in any case."""
        if self._open_log is None:
            return
        log, self._open_log = self._open_log, None
        try:
            with medium_errors(self.path):
                log.sync()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._folder is not None:
            self._folder.close()
            self._folder = None
