"""What clients get about the cache: where blocks are, what the tiers hold, what warming did.

Pure functions of frozen values, in the shapes of docs/protocol.md.
"""

from typing import Any

from model.messages import (
    BlockView,
    EngineInfo,
    EngineStats,
    Residency,
    TableView,
    TierName,
    TierStats,
)
from sessions.warming import Warmed

Json = dict[str, Any]

COUNTED = ("spilled", "restored", "evicted", "lost", "errors", "abandoned")
"""What every tier counts, of blocks."""


def residency_object(residency: Residency) -> Json:
    """Build where a session's state is, in short."""
    return {
        "tier": str(residency.tier),
        "stored_in": [str(tier) for tier in residency.stored_in],
        "num_tokens": residency.num_tokens,
        "num_bytes": residency.num_bytes,
        "used_at": int(residency.used_at),
    }


def warmed_object(session_id: str, warmed: Warmed) -> Json:
    """Build what warming did, and from where."""
    claim = warmed.claim
    return {
        "object": "session.warmed",
        "conversation": session_id,
        "response_id": warmed.turn_id,
        "whole": warmed.is_whole,
        "num_tokens": 0 if claim is None else claim.num_prompt_tokens,
        "device": 0 if claim is None else claim.from_device,
        "cpu": 0 if claim is None else claim.from_cpu,
        "disk": 0 if claim is None else claim.from_disk,
        "computed": 0 if claim is None else claim.computed,
        "total_ms": round(warmed.total_s * 1000, 3),
    }


def _tier(tier: TierStats) -> Json:
    counts = dict(tier.counts)
    return {
        "name": str(tier.name),
        "on": tier.is_on,
        "num_blocks": tier.num_blocks,
        "max_blocks": tier.max_blocks,
        "used_bytes": tier.used_bytes,
        "quota_bytes": tier.quota_bytes,
        "num_conversations": tier.num_conversations,
        **{f"num_{name}": counts.get(name, 0) for name in COUNTED},
    }


def tables_object(session_id: str, tables: tuple[TableView, ...]) -> Json:
    """Build a conversation's block tables."""
    return {
        "object": "kv",
        "conversation": session_id,
        "num_bytes": sum(table.num_bytes for table in tables),
        "tiers": _blocks_by_tier(tables),
        "tables": [_table(table) for table in tables],
    }


def _table(table: TableView) -> Json:
    return {
        "response_id": table.turn_id,
        "running": table.is_running,
        "num_tokens": table.num_tokens,
        "num_computed_tokens": table.num_computed_tokens,
        "idle_s": round(table.idle_s, 3),
        "num_bytes": table.num_bytes,
        "blocks": [
            {
                "block_id": block.block_id,
                "num_tokens": block.num_tokens,
                "tier": str(block.tier),
                "num_holders": block.num_holders,
                "hash": block.block_hash,
                "stored_in": [str(tier) for tier in block.stored_in],
            }
            for block in table.blocks
        ],
    }


def cache_object(info: EngineInfo, stats: EngineStats) -> Json:
    """Build the block pool as it is now."""
    return {
        "object": "cache",
        "model": info.model_id,
        "device": info.device,
        "dtype": info.dtype,
        "kv_dtype": info.kv_dtype,
        "mode": info.mode,
        "attention": info.attention,
        "quantization": info.quantization,
        "compiled_step": {
            "state": str(stats.compiled.state),
            "reason": stats.compiled.reason,
            "num_steps": stats.compiled.num_steps,
        },
        "block_size": info.block_size,
        "block_bytes": info.block_bytes,
        "cache_bytes": info.cache_bytes,
        "weights_bytes": info.weights_bytes,
        "packed_bytes": info.packed_bytes,
        "max_context_tokens": info.max_context_tokens,
        "num_blocks": stats.num_blocks,
        "blocks": {
            "running": stats.blocks_running,
            "parked": stats.blocks_parked,
            "cached": stats.blocks_cached,
            "empty": stats.blocks_empty,
        },
        "num_running": stats.num_running,
        "num_waiting": stats.num_waiting,
        "num_parked_tables": stats.num_parked_tables,
        "tokens": dict(stats.tokens_by_source),
        "misses": dict(stats.misses_by_reason),
        "num_evicted_blocks": stats.evicted_blocks_total,
        "num_preemptions": stats.preemptions_total,
        "num_restarts": stats.num_restarts,
        "tiers": [_tier(tier) for tier in stats.tiers],
    }


def _blocks_by_tier(tables: tuple[TableView, ...]) -> Json:
    """Count each block once in every place that has it; shared ones are somebody else's too."""
    places: dict[TierName, set[str]] = {tier: set() for tier in TierName}
    shared: set[str] = set()
    for table in tables:
        for number, block in enumerate(table.blocks):
            name = block.block_hash or _own_name(table, number, block)
            for tier in (block.tier, *block.stored_in):
                places[tier].add(name)
            if block.num_holders > 1:
                shared.add(name)
    counts = {str(tier): len(found) for tier, found in places.items()}
    return {**counts, "shared": len(shared)}


def _own_name(table: TableView, number: int, block: BlockView) -> str:
    """A partial block's on the device."""
    return f"{table.turn_id}/{number}" if block.block_id is None else f"#{block.block_id}"
