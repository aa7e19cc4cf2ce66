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

    def kv_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """In what `fast` mode keeps keys and values of a model that computes in `dtype`."""
        ...

    def plan(self, batch: Batch) -> AttentionPlan:
        """Prepare one step."""
        ...


class PagedStep(Protocol):
    """What the attention function needs of the step it is called in."""

    @property
    def windows(self) -> Sequence[int | None]:
        """Of each layer, as `observe` found them: what layers say of it by keyword isn't all."""
        ...

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        spec: AttentionSpec,
    ) -> torch.Tensor:
        """Store one layer's key and value `[T, K, D]`, then attend by `query` `[T, H, D]`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step over a cache, by a backend's plan."""

    cache: KVCache
    batch: Batch
    plan: AttentionPlan
    windows: Sequence[int | None]

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        spec: AttentionSpec,
    ) -> torch.Tensor:
        """See `PagedStep`."""
        self.cache.write(layer, self.batch.places, key, value)
        return self.plan.attend(query, self.cache.layer(layer), spec)


class _Options(TypedDict, total=False):
    """What models pass along by keyword; more than this comes and is of no use here."""

    splice_step: Required[PagedStep]
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
    spec = AttentionSpec(
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=step.windows[layer],
        softcap=options.get("softcap"),
    )
    queries, keys, values = (x[0].transpose(0, 1) for x in (query, key, value))
    return step.attend(layer, queries, keys, values, spec)[None], None


def register() -> None:
    """Make `IMPLEMENTATION` known to transformers; again is harmless."""
    AttentionInterface.register(IMPLEMENTATION, paged_attention)
