"""What clients get about the cache, as models: for `/openapi.json` alone."""

from typing import Literal

from app.item_schemas import Answer

Tier = Literal["device", "cpu", "disk"]


class BlockAnswer(Answer):
    """One block of a table; `stored_in` are the tiers below the device that have it too."""

    block_id: int | None
    num_tokens: int
    tier: Tier
    num_holders: int
    hash: str | None
    stored_in: list[Tier]


class TableAnswer(Answer):
    """A block table, as parked under a turn, in use by it, or stored."""

    response_id: str
    running: bool
    num_tokens: int
    num_computed_tokens: int
    idle_s: float
    num_bytes: int
    blocks: list[BlockAnswer]


class PlacesAnswer(Answer):
    """In blocks, each counted once in every place that has it; `shared` are in several tables."""

    device: int
    cpu: int
    disk: int
    shared: int


class TablesAnswer(Answer):
    """A session's block tables."""

    object: Literal["kv"]
    conversation: str
    num_bytes: int
    tiers: PlacesAnswer
    tables: list[TableAnswer]


class WarmedAnswer(Answer):
    """What warming did: where the tokens came from, and whether all are there now."""

    object: Literal["session.warmed"]
    conversation: str
    response_id: str | None
    whole: bool
    num_tokens: int
    device: int
    cpu: int
    disk: int
    computed: int
    total_ms: float


class ParkedAnswer(Answer):
    """Whether there was anything to move."""

    object: Literal["session.parked"]
    conversation: str
    tier: Literal["cpu", "disk"]
    parked: bool


class TierAnswer(Answer):
    """A tier below the device. The counts are blocks, but for errors and abandoned transfers."""

    name: Tier
    on: bool
    num_blocks: int
    max_blocks: int
    used_bytes: int
    quota_bytes: int
    num_conversations: int
    num_spilled: int
    num_restored: int
    num_evicted: int
    num_lost: int
    num_errors: int
    num_abandoned: int


class CompiledStepAnswer(Answer):
    """The step compiled for this machine; `reason` says why there is none, or will be."""

    state: Literal["off", "waiting", "building", "ready", "unavailable"]
    reason: str | None
    num_steps: int


class CacheAnswer(Answer):
    """The block pool and the tiers as they are now."""

    object: Literal["cache"]
    model: str
    device: str
    dtype: str
    kv_dtype: str
    mode: str
    attention: str
    quantization: Literal["none", "file", "int8", "int4"]
    compiled_step: CompiledStepAnswer
    block_size: int
    block_bytes: int
    cache_bytes: int
    weights_bytes: int
    packed_bytes: int
    max_context_tokens: int
    num_blocks: int
    blocks: dict[str, int]
    num_running: int
    num_waiting: int
    num_parked_tables: int
    tokens: dict[str, int]
    misses: dict[str, int]
    num_evicted_blocks: int
    num_preemptions: int
    num_restarts: int
    tiers: list[TierAnswer]


class VerifiedAnswer(Answer):
    """How many records were damaged, and are gone."""

    object: Literal["cache.verified"]
    num_lost: int


class CollectedAnswer(Answer):
    """How many conversations and other models' folders went."""

    object: Literal["cache.collected"]
    num_released: int
    num_folders: int
