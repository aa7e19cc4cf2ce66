"""A cache manager driven by hand: sequences that compute without a model, books checked."""

from itertools import count

from model.block_table import BlockTable
from model.cache_manager import CacheManager
from model.config import SamplingParams
from model.messages import GenerationRequest
from model.prefix_index import BlockHasher
from model.sequence import Sequence
from model.tiering import TierSetup


class Books:
    """Blocks of four tokens. The clock says how many tables were parked."""

    def __init__(
        self, num_blocks: int = 16, *, block_size: int = 4, setup: TierSetup | None = None
    ) -> None:
        hasher = BlockHasher("f", "float32", block_size)
        self.cache = CacheManager(num_blocks, hasher, setup=setup)
        self._now_s = count()

    def sequence(self, name: str, token_ids, *, conversation="conv", **fields) -> Sequence:
        request = GenerationRequest(
            request_id=name,
            token_ids=tuple(token_ids),
            params=SamplingParams(),
            conversation_id=conversation,
            **fields,
        )
        return Sequence(
            request=request,
            table=BlockTable(self.cache.block_size),
            arrived_s=0.0,
            seed=0,
            max_tokens=1000,
        )

    def claim(self, name: str, token_ids, **fields) -> Sequence:
        sequence = self.sequence(name, token_ids, **fields)
        sequence.claim = self.cache.claim(sequence)
        self.cache.check()
        return sequence

    def compute(self, sequence: Sequence, num_tokens: int | None = None) -> None:
        num_tokens = sequence.num_uncomputed_tokens if num_tokens is None else num_tokens
        self.cache.grow(sequence, num_tokens)
        sequence.num_computed_tokens += num_tokens
        self.cache.commit(sequence)
        self.cache.check()

    def append(self, sequence: Sequence, *token_ids: int, committed: bool = True) -> None:
        """Sample and compute tokens."""
        for token_id in token_ids:
            sequence.token_ids.append(token_id)
            sequence.num_committed_tokens += committed
            self.compute(sequence)

    def park(self, sequence: Sequence, last_id: int = 99) -> None:
        """End a sequence with a token that is never computed."""
        sequence.token_ids.append(last_id)
        self.cache.park(sequence, float(next(self._now_s)))
        self.cache.check()

    def turn(self, name: str, token_ids, **fields) -> Sequence:
        """A whole turn whose prompt is computed and whose reply is one token."""
        sequence = self.claim(name, token_ids, **fields)
        self.compute(sequence)
        self.park(sequence)
        return sequence

    def parked(self, conversation: str = "conv") -> dict[str, list[int]]:
        """The block ids of a conversation's parked tables."""
        views = self.cache.view(conversation, 0.0, 1)
        return {v.turn_id: [b.block_id for b in v.blocks] for v in views if not v.is_running}

    def free(self) -> list[int]:
        """The free blocks, next to be reused first."""
        return list(self.cache.pool.free_block_ids())

    def copies(self) -> list[tuple[int, int]]:
        return [(e.source, e.target) for e in self.cache.supply.take_edits()]
