"""What an attention backend is, and how transformers' model code reaches it.

Every decoder that calls its attention through transformers' `AttentionInterface` works: `attend`
is registered there under `IMPLEMENTATION`, gets queries, keys and values of the whole step, stores
the keys and values in the cache and lets the backend read them through the block tables. What
belongs to one step travels as the keyword `splice_step`, so nothing is global.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Required, TypedDict, Unpack

import torch
from transformers import AttentionInterface

from model.batch import Batch
from model.kv_cache import KVCache

IMPLEMENTATION = "splice_paged"


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """One layer's variant: score = softcap(q·k · scaling), over at most `window` last positions."""

    scaling: float
    window: int | None = None
    softcap: float | None = None


class AttentionPlan(Protocol):
    """What a backend prepares once a step for all layers."""

    def attend(self, query: torch.Tensor, kv: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
        """Attention of `query` `[T, H, D]` over one layer's blocks `kv` `[N, 2, P, K, D]`, each row
        over the positions of its own sequence up to its own; `[T, H, D]`."""
        ...


class AttentionBackend(Protocol):
    """Makes plans; holds no state of a step."""

    name: str

    def plan(self, batch: Batch) -> AttentionPlan:
        """Prepare one step."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What the attention function needs of the step it is called in."""

    cache: KVCache
    batch: Batch
    plan: AttentionPlan
    windows: Sequence[int | None]
    """Of each layer, as `observe` found them: what layers say of it by keyword isn't all."""


class _Options(TypedDict, total=False):
    """What models pass along by keyword; more than this comes and is of no use here."""

    splice_step: Required[Step]
    softcap: float | None


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **options: Unpack[_Options],
) -> tuple[torch.Tensor, None]:
    """transformers' attention signature: query `[1, H, T, D]`, key and value `[1, K, T, D]`;
    the output is `[1, T, H, D]`. Causality comes from positions, so the mask is not looked at."""
    step, layer = options["splice_step"], module.layer_idx
    assert isinstance(layer, int)
    step.cache.write(layer, step.batch.places, key[0].transpose(0, 1), value[0].transpose(0, 1))
    spec = AttentionSpec(
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=step.windows[layer],
        softcap=options.get("softcap"),
    )
    output = step.plan.attend(query[0].transpose(0, 1), step.cache.layer(layer), spec)
    return output[None], None


def register() -> None:
    """Make `IMPLEMENTATION` known to transformers; again is harmless."""
    AttentionInterface.register(IMPLEMENTATION, paged_attention)
