"""One generation in flight: its tokens, its counters and its block table.

Invariants:
    num_computed_tokens ≤ num_tokens - 1 whenever a step is scheduled: the last token is always
    computed, so there are always logits to sample from
    num_committed_tokens ≤ num_tokens: tokens behind it may still be cut off by a stop string
    waiting ⇔ the table is empty
"""

import math
from array import array
from dataclasses import dataclass, field
from enum import StrEnum

from model.block_table import BlockTable
from model.grammar import Constraint
from model.messages import ClaimReport, GenerationRequest, MissReason, TierName
from model.prefix_index import BlockHash


@dataclass(frozen=True, slots=True)
class RestoredRun:
    """The tokens from position `start` to `end` came back from a tier."""

    start: int
    end: int
    tier: TierName


class SequenceStatus(StrEnum):
    """`waiting → running → finished`; `running → waiting` when preempted."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """Mutable, owned by the engine core. Identity is equality: two are never the same.

    `arrived_s` is the engine's monotonic clock at submission; `max_tokens` bounds prompt and reply
    together; `seed` is fixed at submission, so that a preempted reply goes on as it would have.
    `restored` is what came back from the tiers for its next claim, `restore_miss` why something
    did not, `restore_s` for how long it was waited for. `claimed_s` is when it was claimed first,
    whether or not it had to wait then.
    """

    request: GenerationRequest
    table: BlockTable
    arrived_s: float
    seed: int
    max_tokens: int
    constraint: Constraint | None = None
    deadline_s: float = field(init=False)
    token_ids: "array[int]" = field(init=False)
    num_prompt_tokens: int = field(init=False)
    num_committed_tokens: int = field(init=False)
    status: SequenceStatus = SequenceStatus.WAITING
    num_computed_tokens: int = 0
    num_rows_computed: int = 0
    num_preemptions: int = 0
    claim: ClaimReport | None = None
    restored: tuple[RestoredRun, ...] = ()
    restore_miss: MissReason | None = None
    restore_s: float = 0.0
    num_named_blocks: int = 0
    block_hashes: list[BlockHash] = field(default_factory=list)
    claimed_s: float | None = None
    started_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None

    def __post_init__(self) -> None:
        deadline_s = self.request.params.deadline_s
        self.deadline_s = math.inf if deadline_s is None else self.arrived_s + deadline_s
        self.token_ids = array("i", self.request.token_ids)
        self.num_prompt_tokens = self.num_committed_tokens = len(self.token_ids)

    @property
    def id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def num_tokens(self) -> int:
        """Prompt and reply so far."""
        return len(self.token_ids)

    @property
    def num_uncomputed_tokens(self) -> int:
        """Tokens whose keys and values don't exist yet; 1 while decoding."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def reply_ids(self) -> tuple[int, ...]:
        """The ids sampled so far."""
        return tuple(self.token_ids[self.num_prompt_tokens :])

    def replace_reply(self, num_kept: int, tail: list[int]) -> None:
        """Keep `num_kept` sampled tokens and put `tail` behind them, as after a stop string.

        Keys and values behind what is kept, and those of the last token, count as not computed.
        """
        keep = self.num_prompt_tokens + num_kept
        self.token_ids[keep:] = array("i", tail)
        self.num_computed_tokens = min(self.num_computed_tokens, keep, self.num_tokens - 1)
        self.num_committed_tokens = self.num_tokens
        num_blocks = keep // self.table.block_size
        del self.block_hashes[num_blocks:]
        self.num_named_blocks = min(self.num_named_blocks, num_blocks)
