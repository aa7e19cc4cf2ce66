"""Plain paged attention, one sequence at a time, in float32: the oracle of the other backends.

Scaled dot product attention as in Vaswani et al. 2017, section 3.2.1, with grouped key-value heads
(Ainslie et al. 2023), an optional window and Gemma 2's soft cap of the scores.
"""

import torch

from model.attention.base import AttentionSpec
from model.batch import Batch


class ReferencePlan:
    """Reads one step's tables as they are."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def attend(self, query: torch.Tensor, kv: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
        """See `AttentionPlan`."""
        batch = self._batch
        outputs = [
            _attend(query[begin:end], kv[table], length, spec)
            for table, (begin, end), length in zip(
                batch.tables, batch.spans, batch.ends, strict=True
            )
        ]
        return torch.cat(outputs).to(query.dtype)


class ReferenceBackend:
    """The backend of `exact` mode."""

    name = "reference"

    def kv_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The model's own."""
        return dtype

    def plan(self, batch: Batch) -> ReferencePlan:
        """Nothing to prepare."""
        return ReferencePlan(batch)


def _attend(
    query: torch.Tensor, blocks: torch.Tensor, length: int, spec: AttentionSpec
) -> torch.Tensor:
    """`query` `[T, H, D]` over `blocks` `[M, 2, P, K, D]`, of which `length` positions exist."""
    num_queries, num_heads, _ = query.shape
    keys, values = blocks.transpose(0, 1).flatten(1, 2)[:, :length].float()  # [S, K, D] each
    num_groups = num_heads // keys.shape[1]
    keys = keys.repeat_interleave(num_groups, dim=1).transpose(0, 1)  # [H, S, D]
    values = values.repeat_interleave(num_groups, dim=1).transpose(0, 1)  # [H, S, D]
    scores = query.float().transpose(0, 1) @ keys.transpose(1, 2) * spec.scaling  # [H, T, S]
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    hidden = hidden_positions(length - num_queries, num_queries, length, spec.window, query.device)
    probabilities = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
    output: torch.Tensor = probabilities @ values
    return output.transpose(0, 1)  # [T, H, D]


def hidden_positions(
    start: int, num_queries: int, length: int, window: int | None, device: torch.device
) -> torch.Tensor:
    """Which of `length` positions the queries at `start` and on must not see, `[T, S]`."""
    rows = torch.arange(start, start + num_queries, device=device)[:, None]
    columns = torch.arange(length, device=device)[None]
    hidden = columns > rows
    return hidden if window is None else hidden | (columns <= rows - window)
