"""Puts the tiers of an engine together: media, threads, and what restoring and computing cost.

A medium that can't be opened costs its tier, never the server.
"""

import logging
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from model.batch import BatchRow
from model.config import EngineConfig
from model.costs import CostModel
from model.errors import ModelLoadError
from model.kv_cache import KVCache
from model.prefix_index import LAYOUT_VERSION, BlockHash, BlockHasher
from model.runner import ModelRunner
from model.spills import SpillConfig
from model.tiering import TierSetup
from model.tiers.base import Identity, Record, Storage, TierError
from model.tiers.cipher import Cipher
from model.tiers.copies import Copier
from model.tiers.cpu import CpuStorage
from model.tiers.disk import DiskStorage
from model.tiers.foreign import ForeignFolders
from model.tiers.holds import HoldLog
from model.tiers.mover import OpenStorage
from model.tiers.tier import Tier
from model.tiers.transfers import Transfers
from model.worth import Worth

logger = logging.getLogger(__name__)

_DISK_SHARE = 0.8
"""Of the quota that live records may take up: the rest is what compaction works with."""
_NUM_PROBES = 8
_PROBE_ROWS = (32, 64, 128)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the tiers' threads and books need of the process: the monotonic and the wall clock in
    seconds, whom to wake when a job is over, and what copies memory."""

    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    wake: Callable[[], None]
    make_copier: Callable[[], Copier]


def build_tiers(
    config: EngineConfig, hasher: BlockHasher, runner: ModelRunner, around: Surroundings
) -> TierSetup:
    """The tiers that the configuration names and that work, and what computing costs."""
    blocks = runner.blocks
    costs = CostModel(hasher.block_size, blocks.block_bytes)
    worth = Worth(config.eviction, costs, hasher.block_size, blocks.block_bytes, around.wall_clock)
    tiers: list[Tier] = []
    identity = _identity(hasher, blocks)
    for medium in _media(config, identity, around.make_copier):
        storage = medium.storage
        try:
            records = storage.open()
            holds = medium.holds.open()
        except TierError as exc:
            logger.warning("serving without the %s tier: %s", storage.name, exc)
            continue
        try:
            _measure_restore(storage, blocks.block_bytes, costs, around.clock)
        except TierError as exc:
            # What it has can perhaps be read; what it costs is learnt from that.
            logger.warning("the %s tier takes nothing more: %s", storage.name, exc)
        tier = Tier(
            Transfers(storage, blocks, around.clock, around.wake, medium.direct),
            medium.holds,
            max_records=int(storage.quota_bytes * medium.share) // storage.record_bytes(),
            block_size=hasher.block_size,
            worth=partial(worth.of_record, storage.name),
            clock=around.clock,
        )
        tier.rebuild(records, holds)
        tiers.append(tier)
    worth.tiers = tiers
    if tiers:
        _measure_compute(runner, hasher.block_size, costs, around.clock)
    spill = SpillConfig(
        cpu_after_s=config.spill_to_cpu_after_s, disk_after_s=config.spill_to_disk_after_s
    )
    return TierSetup(
        costs=costs,
        worth=worth,
        tiers=tuple(tiers),
        spill=spill,
        wall_clock=around.wall_clock,
        foreign=_foreign(config, identity),
    )


def _foreign(config: EngineConfig, identity: Identity) -> ForeignFolders | None:
    if config.kv_dir is None or not config.disk_tier_bytes:
        return None
    return ForeignFolders(config.kv_dir, identity, config.disk_tier_bytes, _cipher(config))


def _identity(hasher: BlockHasher, blocks: KVCache) -> Identity:
    return Identity(
        fingerprint=hasher.fingerprint,
        dtype=str(blocks.shape.dtype).removeprefix("torch."),
        block_size=hasher.block_size,
        layout_version=LAYOUT_VERSION,
        block_bytes=blocks.block_bytes,
    )


@dataclass(frozen=True, slots=True)
class _Medium:
    """A tier's storage, the share of it that live records may take up, and its claims. `direct` is
    the storage again, if a device may be let at its memory."""

    storage: Storage
    share: float
    holds: HoldLog
    direct: OpenStorage | None = None


def _media(
    config: EngineConfig, identity: Identity, make_copier: Callable[[], Copier]
) -> Iterator[_Medium]:
    """The media, quickest first."""
    if config.kv_dir is None:
        return
    if config.cpu_tier_bytes and config.cpu_tier_fd is not None:
        storage = CpuStorage(identity, config.cpu_tier_bytes, config.cpu_tier_fd, make_copier)
        holds = HoldLog(config.kv_dir / "cpu", identity)
        yield _Medium(storage, 1.0, holds, direct=storage)
    if config.disk_tier_bytes:
        disk = DiskStorage(config.kv_dir, identity, config.disk_tier_bytes, cipher=_cipher(config))
        yield _Medium(disk, _DISK_SHARE, HoldLog(config.kv_dir, identity))


def _cipher(config: EngineConfig) -> Cipher | None:
    if config.kv_key is None:
        return None
    try:
        return Cipher.from_text(config.kv_key)
    except TierError as exc:
        raise ModelLoadError(f"the disk tier can't be encrypted: {exc}") from exc


def _measure_restore(
    storage: Storage, block_bytes: int, costs: CostModel, clock: Callable[[], float]
) -> None:
    """Write a few blocks, read them back and erase them."""
    payload = memoryview(bytearray(secrets.token_bytes(block_bytes)))
    records = [Record(BlockHash(secrets.token_bytes(32)), None, 0, 1) for _ in range(_NUM_PROBES)]
    for record in records:
        storage.write(record, payload)
    for num_blocks in (1, _NUM_PROBES):
        begun = clock()
        for record in records[:num_blocks]:
            storage.read(record, payload)
        costs.observe_restore(storage.name, num_blocks, clock() - begun)
    storage.erase([record.key for record in records])


def _measure_compute(
    runner: ModelRunner, block_size: int, costs: CostModel, clock: Callable[[], float]
) -> None:
    """Compute a few prompts of different lengths, in blocks that nobody uses yet."""
    num_slots = runner.blocks.num_blocks * block_size
    for num_rows in (r for r in _PROBE_ROWS if r <= num_slots):
        blocks = range(-(-num_rows // block_size))
        row = BatchRow([0] * num_rows, 0, blocks, has_logits=True)  # a token that every model has
        begun = clock()
        runner.forward([row], [])
        if num_rows != _PROBE_ROWS[0]:  # the first warms up
            costs.observe_compute(num_rows, 0, clock() - begun)
    runner.num_rows = 0
