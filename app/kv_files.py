"""The disk tier's folder while no server has it: what is in it, and whether it is whole."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.refusals import RefusalError
from app.settings import Settings, SettingsError, kv_key
from model.tiers.base import Identity, TierError
from model.tiers.cipher import Cipher
from model.tiers.disk import DiskStorage
from model.tiers.folder import LOCK_NAME, folder_bytes, identity_folder
from model.tiers.holds import conversations_in
from model.tiers.records import parse_identity
from model.tiers.segment import segment_header

_ROOM_BYTES = 1 << 50
"""Nothing is given up for room here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """What one model has left: its fingerprint, and for whom."""

    path: Path
    fingerprint: str
    dtype: str
    num_bytes: int
    conversations: tuple[str, ...]


def folders(settings: Settings) -> Iterator[Folder]:
    """All there are. Raises RefusalError."""
    root = settings.effective_kv_dir
    for identity in _identities(root):
        path = identity_folder(root, identity)
        yield Folder(
            path=path,
            fingerprint=identity.fingerprint,
            dtype=identity.dtype,
            num_bytes=folder_bytes(path),
            conversations=tuple(sorted(conversations_in(root, identity))),
        )


def verify(settings: Settings) -> tuple[int, int]:
    """Read every record and drop the damaged; how many there were, and how many of them are gone.

    Raises RefusalError, also while a server has the folder.
    """
    root, num_records, num_lost = settings.effective_kv_dir, 0, 0
    sealed_by = cipher()
    for identity in _identities(root):
        _check_seal(identity_folder(root, identity), identity, sealed_by)
        storage = DiskStorage(root, identity, _ROOM_BYTES, cipher=sealed_by)
        try:
            num_records += len(storage.open())
            num_lost += sum(record is not None for record in storage.verify())
            storage.close()
        except TierError as exc:
            raise RefusalError(f"{exc}: ask the server that uses it, with --url") from exc
    return num_records, num_lost


def _check_seal(path: Path, identity: Identity, cipher: Cipher | None) -> None:
    """Raise RefusalError for segments that the key doesn't open: they would be dropped."""
    header = bytes(segment_header(identity, cipher.name if cipher else None))
    for segment in path.glob("*.kv"):
        with segment.open("rb") as file:
            if file.read(len(header)) != header:
                raise RefusalError(
                    f"{segment} is encrypted with another key, or with none, or damaged: set "
                    "SPLICE_KV_KEY to what its server has"
                )


def cipher() -> Cipher | None:
    """What SPLICE_KV_KEY seals with; None where nothing is sealed. Raises SettingsError."""
    key = kv_key()
    try:
        return None if key is None else Cipher.from_text(key)
    except TierError as exc:
        raise SettingsError(f"SPLICE_KV_KEY: {exc}") from exc


def _identities(root: Path) -> list[Identity]:
    found = []
    try:
        for lock in sorted(root.glob(f"*/{LOCK_NAME}")):
            identity = parse_identity(lock.read_bytes())
            if identity is not None and identity_folder(root, identity) == lock.parent:
                found.append(identity)
    except OSError as exc:
        raise RefusalError(f"{root} can't be read: {exc.strerror}") from exc
    return found
