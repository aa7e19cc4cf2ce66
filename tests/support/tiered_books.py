"""A cache manager with tiers in memory, driven by hand. What a block holds is told by one byte."""

from collections.abc import Sequence as Items
from functools import partial

from model.costs import CostModel
from model.eviction import EvictionPolicy
from model.messages import TierName
from model.sequence import Sequence
from model.spills import SpillConfig
from model.tiering import TierSetup
from model.tiers.tier import Tier
from model.worth import Worth
from tests.support.block_books import Books
from tests.support.memory_storage import ManualRunner, MemoryStorage, NumberedBlocks


class TieredBooks(Books):
    """Blocks of four tokens, idle after ten seconds. `now_s` is both clocks, but that the wall
    clock has jumped by `jump_s`; nothing moves before `move` says so."""

    def __init__(
        self,
        num_blocks: int = 16,
        *,
        media: Items[MemoryStorage] = (),
        max_records: int = 100,
    ) -> None:
        self.now_s = 100.0
        self.jump_s = 0.0
        self.media = list(media) or [MemoryStorage()]
        self.blocks = NumberedBlocks(num_blocks)
        self.costs = CostModel(4, 1)
        worth = Worth(EvictionPolicy.VALUE, self.costs, 4, 1, self.wall_clock)
        self.runners = [ManualRunner(medium, self.blocks) for medium in self.media]
        self.tiers = tuple(
            Tier(
                runner,
                runner.storage,
                max_records=max_records,
                block_size=4,
                worth=partial(worth.of_record, runner.storage.name),
                clock=lambda: self.now_s,
            )
            for runner in self.runners
        )
        worth.tiers = self.tiers
        for tier, medium in zip(self.tiers, self.media, strict=True):
            tier.rebuild(medium.open(), list(medium.holds.values()))
        super().__init__(
            num_blocks,
            setup=TierSetup(
                costs=self.costs,
                worth=worth,
                tiers=self.tiers,
                spill=SpillConfig(cpu_after_s=2.0, disk_after_s=10.0),
                wall_clock=self.wall_clock,
            ),
        )

    def wall_clock(self) -> float:
        return self.now_s + self.jump_s

    @property
    def tier(self) -> Tier:
        """The only one, or the quickest."""
        return self.tiers[0]

    @property
    def medium(self) -> MemoryStorage:
        return self.media[0]

    def write(self, sequence: Sequence) -> None:
        """Put into each of a sequence's blocks the first of its tokens."""
        for i, block_id in enumerate(sequence.table.block_ids):
            self.blocks.contents[block_id] = sequence.token_ids[4 * i]

    def read(self, sequence: Sequence) -> list[int]:
        """What the blocks with computed tokens hold."""
        num_blocks = -(-sequence.num_computed_tokens // 4)
        return [self.blocks.contents[b] for b in sequence.table.block_ids[:num_blocks]]

    def compute(self, sequence: Sequence, num_tokens: int | None = None) -> None:
        super().compute(sequence, num_tokens)
        for edit in self.cache.supply.take_edits():
            if edit.source is not None:
                self.blocks.contents[edit.target] = self.blocks.contents[edit.source]
        self.write(sequence)

    def tick(self, seconds: float = 0.0) -> None:
        """Time passes; what is due is ordered, nothing moves."""
        self.now_s += seconds
        self.cache.tick(self.now_s)
        self.cache.supply.take_edits()
        self.cache.tiering.launch()
        self.cache.check()

    def move(self, num_jobs: int = 10_000) -> None:
        """Let the media work, and take note of it."""
        for runner in self.runners:
            runner.run(num_jobs)
        self.tick()

    def erased_by_moving(self) -> set[int]:
        """As `move`; the blocks whose bytes are overwritten then."""
        for runner in self.runners:
            runner.run()
        self.cache.tick(self.now_s)
        return {e.target for e in self.cache.supply.take_edits() if e.source is None}

    def idle(self, seconds: float = 10.0) -> None:
        """Time passes until everything that idles is stored."""
        self.tick(seconds)
        for _ in range(20):
            self.move()
            self.tick(0.3)

    def lunch(self) -> None:
        """Everything is stored, and the device gives it up."""
        self.idle()
        self.cache.evict_all()
        self.cache.check()

    def park(self, sequence: Sequence, last_id: int = 99) -> None:
        sequence.token_ids.append(last_id)
        self.cache.park(sequence, self.now_s)
        self.cache.check()

    def restarted(self, num_blocks: int = 16) -> "TieredBooks":
        """Another engine on the same media."""
        books = TieredBooks(num_blocks, media=self.media)
        books.now_s = self.now_s
        books.tick()
        return books

    def stored(self, name: TierName | None = None) -> set[int]:
        """The first tokens of the blocks in a tier."""
        return {p[0] for m in self.media if name in (None, m.name) for p in m.payloads.values()}
