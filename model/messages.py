"""What crosses the process boundary: frozen dataclasses of plain values, nothing else.

A generation is answered by one `GenerationStarted` (none if it ended while it waited), any number
of `GenerationDelta` and one `GenerationFinished`; when it can't go on, by a `ModelError` raised out
of the stream.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from model.config import SamplingParams


class TierName(StrEnum):
    """Where a block's bytes are."""

    DEVICE = "device"
    CPU = "cpu"
    DISK = "disk"


class MissReason(StrEnum):
    """Why less was reused than could have been."""

    NEW = "new"
    EVICTED = "evicted"
    DIVERGED = "diverged"
    FINGERPRINT_CHANGED = "fingerprint_changed"
    SALT = "salt"
    LOAD_FAILED = "load_failed"
    RECOMPUTE_CHEAPER = "recompute_cheaper"


class FinishReason(StrEnum):
    """How a generation ended. `stop` is an end token, a stop id or a stop string."""

    STOP = "stop"
    LENGTH = "length"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One generation: the whole prompt as ids, and what is known of its past.

    `request_id` is unique (a turn's `resp_…` id). With a `conversation_id` the block table is
    parked under `request_id` at the end, for the next turn's `parent_turn_id` to take up; without
    one nothing is parked, and full blocks remain in the prefix index as long as they last.
    `origin_conversation_id` names the conversation that a fork's history lies in: its tables are
    looked at too, and shared.
    `num_known_tokens` counts the leading prompt tokens that the parent's turn had (0: new), and
    `parent_fingerprint` is what it was computed with: both serve only to name a miss's reason.
    `diverged_at` is the first position where the prompt had to leave the stored history.
    `owner` salts the block hashes, but for the first `num_public_tokens`, which all owners may
    share; scheduling is fair between owners.
    `retain_s` and `priority` are hints to what is given up first when memory is short: the table
    counts as just used for so long, and goes behind those of a lower priority. They lock nothing.
    `resumed_ids` are reply tokens that an engine which is gone has sampled already (None: there was
    none before): they are taken as they are, only what follows them is reported, and no bound on
    admission keeps out what was admitted once.
    """

    request_id: str
    token_ids: Sequence[int]
    params: SamplingParams
    owner: str = ""
    num_public_tokens: int = 0
    resumed_ids: tuple[int, ...] | None = None
    conversation_id: str | None = None
    parent_turn_id: str | None = None
    origin_conversation_id: str | None = None
    num_known_tokens: int = 0
    parent_fingerprint: str | None = None
    diverged_at: int | None = None
    retain_s: float = 0.0
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReport:
    """Where each prompt token came from, in tokens; they add up to the prompt's length."""

    num_prompt_tokens: int
    from_device: int = 0
    from_cpu: int = 0
    from_disk: int = 0
    computed: int = 0
    reason: MissReason | None = None
    diverged_at: int | None = None

    @property
    def num_reused(self) -> int:
        """Prompt tokens that were not computed again."""
        return self.from_device + self.from_cpu + self.from_disk


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStarted:
    """The generation has its blocks; comes once, before the first token."""

    claim: ClaimReport


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's log probability under the model, before any sampling parameter."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class SampledLogprobs:
    """The sampled token's, and those of the likeliest, best first."""

    sampled: TokenLogprob
    likeliest: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDelta:
    """New text (whole characters only, may be empty) and the ids sampled since the last delta;
    `logprobs` has one entry for each id if they were asked for."""

    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[SampledLogprobs, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFinished:
    """The end. `token_ids` and `text` are the whole reply as committed, not what deltas add up to:

    at a stop string the ids of the cut token are replaced by the ids of what remains of it.
    `num_rows_computed` counts the rows that entered the model for this generation: prompt tokens
    that were not reused, every fed reply token, and whatever a preemption made necessary again.
    Times are seconds from the request's arrival in the engine; `first_token_s` is None when there
    was no token. `restore_s` is how long blocks took to come back from other tiers, as a rule a
    part of `queue_s`; so is `claim_s`, from the first claim of its tokens to the first step.
    """

    reason: FinishReason
    token_ids: tuple[int, ...]
    text: str
    num_rows_computed: int
    num_preemptions: int = 0
    queue_s: float = 0.0
    first_token_s: float | None = None
    total_s: float = 0.0
    claim_s: float = 0.0
    restore_s: float = 0.0


GenerationEvent = GenerationStarted | GenerationDelta | GenerationFinished


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What was loaded; sizes in bytes. The model computes in `dtype`, and its keys and values are
    kept in `kv_dtype`. `tokenizer_path` is a folder transformers can read;
    `sampling` is what the model's makers recommend. `quantization` is `none`, `int8`, `int4` or
    `file`; `packed_bytes` are the weights that it decodes with, beside `weights_bytes`."""

    model_id: str
    tokenizer_path: str
    fingerprint: str
    device: str
    dtype: str
    kv_dtype: str
    mode: str
    attention: str
    quantization: str = "none"
    weights_bytes: int
    packed_bytes: int = 0
    cache_bytes: int
    num_blocks: int
    block_size: int
    block_bytes: int
    max_context_tokens: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    sampling: SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockView:
    """One block of a table: how many of its slots are computed, where it is, who shares it.

    `block_id` is None where the device doesn't have it; `tier` is the quickest that has it, and
    `stored_in` are those below the device.
    """

    block_id: int | None
    num_tokens: int
    tier: TierName
    num_holders: int
    block_hash: str | None
    stored_in: tuple[TierName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """A conversation's block table, as parked under a turn, in use by it, or stored in a tier.
    `num_bytes` are those of its blocks, each counted once wherever it is."""

    turn_id: str
    is_running: bool
    num_tokens: int
    num_computed_tokens: int
    idle_s: float
    num_bytes: int
    blocks: tuple[BlockView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """Where a conversation's newest table is: the quickest tier that has all of it. `tail` names
    its last block in hexadecimal; `used_at` is wall-clock seconds, `num_bytes` those of its blocks,
    shared ones too; `stored_in` are the tiers below the device that have all of it."""

    conversation_id: str
    turn_id: str
    tier: TierName
    tail: str
    num_tokens: int
    num_bytes: int
    used_at: float
    stored_in: tuple[TierName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Cumulative counts by upper bound (seconds), Prometheus-style; the last bound is infinity."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """The engine's steps: how long they took, and what they computed: rows of replies and of
    prompts, and chunks, which are one prompt's rows in one step. Held steps had rows left for
    prompts, and no time; late ones kept replies waiting for longer than `max_itl_s`."""

    seconds: Histogram = Histogram(bounds=(math.inf,), counts=(0,), total=0.0)
    reply_rows_total: int = 0
    prompt_rows_total: int = 0
    chunks_total: int = 0
    held_total: int = 0
    late_total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStats:
    """A tier below the device. Bytes are those on the medium; `counts` are blocks `spilled`,
    `restored`, `evicted` and `lost` (not what was written), `errors` of the medium and transfers
    `abandoned` since the engine's process started."""

    name: TierName
    is_on: bool
    num_blocks: int
    max_blocks: int
    used_bytes: int
    quota_bytes: int
    num_conversations: int
    counts: tuple[tuple[str, int], ...]


class CompiledState(StrEnum):
    """How it stands with the compiled step. `waiting` until nobody computes."""

    OFF = "off"
    WAITING = "waiting"
    BUILDING = "building"
    READY = "ready"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStats:
    """The compiled step: why it can't be had, or why nobody wants it; the steps it did."""

    state: CompiledState = CompiledState.OFF
    reason: str | None = None
    num_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot of the engine. Blocks: held by running tables, held by parked ones only, free
    with contents still known (`cached`), free and empty. Counters never go down while the
    engine's process lives; `num_restarts` counts over the server's life."""

    num_blocks: int
    blocks_running: int
    blocks_parked: int
    blocks_cached: int
    blocks_empty: int
    num_running: int
    num_waiting: int
    num_parked_tables: int
    rows_computed_total: int
    tokens_generated_total: int
    tokens_by_source: tuple[tuple[str, int], ...]
    misses_by_reason: tuple[tuple[str, int], ...]
    finished_by_reason: tuple[tuple[str, int], ...]
    preemptions_total: int
    evicted_blocks_total: int
    books_failures_total: int
    steps_total: int
    first_token_s: Histogram
    inter_token_s: Histogram
    queue_s: Histogram
    restore_s: Histogram
    steps: StepStats = StepStats()
    tiers: tuple[TierStats, ...] = ()
    compiled: CompiledStats = CompiledStats()
    num_restarts: int = 0
