"""Other identities' folders beside our own: what a model that was served before has left.

Their blocks are of no use here, but their conversations can be deleted here, and their bytes count
towards the quota. All of it blocks and may take long, so each call gives an iterator, whose steps
the disk tier's thread takes one after the other, with what is urgent in between.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from model.tiers.base import Identity, Record, TierError
from model.tiers.cipher import Cipher
from model.tiers.disk import DiskStorage
from model.tiers.folder import (
    LOCK_NAME,
    collect_foreign,
    folder_bytes,
    foreign_identities,
    identity_folder,
    remove_folder,
)
from model.tiers.holds import HoldLog, conversations_in
from model.tiers.tree import RecordTree

logger = logging.getLogger(__name__)

MAX_AGE_S = 7 * 86400.0
"""What nobody used for so long goes, even where there is room."""
_ERASED_AT_ONCE = 16


class ForeignFolders:
    """The folders below `root` that aren't `identity`'s."""

    def __init__(
        self, root: Path, identity: Identity, quota_bytes: int, cipher: Cipher | None = None
    ) -> None:
        self._root = root
        self._identity = identity
        self._quota_bytes = quota_bytes
        self._cipher = cipher

    def collect(self, now: float) -> Iterator[Path | None]:
        """Remove what is old, or too much, and yield the folders that are gone, None between. `now`
        is wall-clock seconds. Raises TierUnavailableError."""
        for path in collect_foreign(
            self._root,
            self._identity,
            quota_bytes=self._quota_bytes,
            max_age_s=MAX_AGE_S,
            now=now,
        ):
            if path is not None:
                logger.info("removed %s, which another model left behind", path)
            yield path

    def conversations(self) -> Iterator[frozenset[str]]:
        """Whom each folder names. Raises TierUnavailableError."""
        for identity in foreign_identities(self._root, self._identity):
            yield conversations_in(self._root, identity)

    def release(self, conversation_id: str) -> Iterator[None]:
        """Erase what only this conversation has in each of them. A folder that another process uses
        is that one's own to clean; another that can't be cleaned is left to `collect`."""
        for identity in foreign_identities(self._root, self._identity):
            if conversation_id in conversations_in(self._root, identity):
                try:
                    yield from self._release(identity, conversation_id)
                except TierError as exc:
                    logger.warning("%s stays as it is: %s", identity.fingerprint, exc)
            yield

    def _release(self, identity: Identity, conversation_id: str) -> Iterator[None]:
        path = identity_folder(self._root, identity)
        before = (path / LOCK_NAME).stat()
        room = 2 * folder_bytes(path) + (1 << 20)
        storage = DiskStorage(self._root, identity, room, cipher=self._cipher)
        try:
            records = storage.open()
            if records:
                holds = HoldLog(self._root, identity)
                yield from _release_from(storage, records, holds, conversation_id)
        finally:
            storage.close()
        if not records:  # sealed with another key, perhaps: nothing in it can be told apart
            remove_folder(path)
            return
        # Cleaning is no use: its age goes on.
        os.utime(path / LOCK_NAME, (before.st_atime, before.st_mtime))


def _release_from(
    storage: DiskStorage, records: list[Record], holds: HoldLog, conversation_id: str
) -> Iterator[None]:
    yield  # behind what opening took
    tree = RecordTree()
    tree.rebuild(records)
    for hold in holds.open():
        tree.hold(hold)
    doomed = [record.key for record in tree.release(conversation_id)]
    for start in range(0, len(doomed), _ERASED_AT_ONCE):
        storage.erase(doomed[start : start + _ERASED_AT_ONCE])
        yield
    holds.drop(conversation_id)
    holds.close()
