"""Paged attention good enough to serve, in plain torch, in the cache's own dtype, on any device.

Decoding sequences are gathered and attended to in groups; prefill chunks one by one, their queries
in tiles. Both are bounded in bytes: on a CPU what is gathered stays in its cache (eight sequences
of 2,000 tokens at once take 11 ms a layer, one after the other 3), on CUDA a bound only keeps
memory in check.
"""

from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

from model.attention.base import AttentionSpec
from model.attention.reference import hidden_positions
from model.batch import Batch

_CPU_BYTES = 2 << 20
_CUDA_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, eq=False)
class _Decoding:
    """Sequences with one query each."""

    rows: torch.Tensor  # [B] rows of T
    tables: torch.Tensor  # [B, M], padded with a block of the batch
    lengths: torch.Tensor  # [B]
    shortest: int  # of the lengths, known without asking the device


class BatchedPlan:
    """The step's sequences, sorted into decoding groups and prefill chunks."""

    def __init__(self, batch: Batch, max_bytes: int) -> None:
        self._batch = batch
        self._max_bytes = max_bytes
        sizes = [end - begin for begin, end in batch.spans]
        self._prefills = [i for i, size in enumerate(sizes) if size > 1]
        self._decodes = sorted(
            (i for i, size in enumerate(sizes) if size == 1), key=batch.ends.__getitem__
        )
        self._groups: list[_Decoding] | None = None
        self._hidden: dict[tuple[int, int | None], torch.Tensor] = {}

    def attend(self, query: torch.Tensor, kv: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
        """See `AttentionPlan`."""
        output = torch.empty_like(query)
        for i in self._prefills:
            begin, end = self._batch.spans[i]
            output[begin:end] = self._prefill(i, query[begin:end], kv, spec)
        if self._groups is None:
            self._groups = self._build_groups(kv[0].numel() * kv.dtype.itemsize)
        for number, group in enumerate(self._groups):
            output[group.rows] = self._decode(number, group, query[group.rows], kv, spec)
        return output

    def _build_groups(self, block_bytes: int) -> list[_Decoding]:
        """Neighbours in length share a group as long as the padded group stays under the bound."""
        groups: list[list[int]] = []
        for i in self._decodes:
            num_bytes = len(self._batch.tables[i]) * block_bytes
            if groups and num_bytes * (len(groups[-1]) + 1) <= self._max_bytes:
                groups[-1].append(i)
            else:
                groups.append([i])
        return [self._build_group(group) for group in groups]

    def _build_group(self, members: list[int]) -> _Decoding:
        batch = self._batch
        device = batch.token_ids.device
        # Padding names block 0; what is in there is masked, NaN included.
        tables = pad_sequence([batch.tables[i] for i in members], batch_first=True)
        return _Decoding(
            rows=torch.tensor([batch.spans[i][0] for i in members], device=device),
            tables=tables,
            lengths=torch.tensor([batch.ends[i] for i in members], device=device),
            shortest=min(batch.ends[i] for i in members),
        )

    def _decode(
        self,
        number: int,
        group: _Decoding,
        query: torch.Tensor,
        kv: torch.Tensor,
        spec: AttentionSpec,
    ) -> torch.Tensor:
        """`query` `[B, H, D]`, one position a sequence."""
        num_seqs, num_heads, head_size = query.shape
        blocks = kv.index_select(0, group.tables.flatten())  # [B·M, 2, P, K, D]
        keys, values = (
            blocks[:, part].reshape(num_seqs, -1, *kv.shape[-2:]) for part in (0, 1)
        )  # [B, S, K, D]
        hidden = self._hidden_of_group(number, group, keys.shape[1], spec.window)
        if keys.shape[1] > group.shortest or spec.window is not None:
            values = values.masked_fill(hidden[:, :, None, None], 0)
        query = query.view(num_seqs, kv.shape[-2], -1, head_size)  # [B, K, G, D]
        probabilities = _softmax(query @ keys.permute(0, 2, 3, 1), hidden[:, None, None], spec)
        return (probabilities @ values.transpose(1, 2)).view(num_seqs, num_heads, head_size)

    def _hidden_of_group(
        self, number: int, group: _Decoding, num_slots: int, window: int | None
    ) -> torch.Tensor:
        """Which slots each sequence must not see, `[B, S]`; made once a step and window."""
        hidden = self._hidden.get((number, window))
        if hidden is None:
            columns = torch.arange(num_slots, device=group.lengths.device)[None]
            hidden = columns >= group.lengths[:, None]
            if window is not None:
                hidden = hidden | (columns < group.lengths[:, None] - window)
            self._hidden[number, window] = hidden
        return hidden

    def _prefill(
        self, i: int, query: torch.Tensor, kv: torch.Tensor, spec: AttentionSpec
    ) -> torch.Tensor:
        """`query` `[T, H, D]`, a chunk of sequence i; `[T, H, D]`."""
        num_queries, num_heads, head_size = query.shape
        num_kv_heads, length = kv.shape[-2], self._batch.ends[i]
        blocks = kv.index_select(0, self._batch.tables[i])  # [M, 2, P, K, D]
        keys, values = (blocks[:, part].flatten(0, 1)[:length] for part in (0, 1))  # [S, K, D]
        keys, values = keys.permute(1, 2, 0), values.transpose(0, 1)  # [K, D, S], [K, S, D]
        tile = max(1, self._max_bytes // (4 * num_heads * length))
        outputs = []
        for first in range(0, num_queries, tile):
            part = query[first : first + tile]
            start = length - num_queries + first
            # Positions behind a tile's last query are of no use to any of its rows.
            seen = start + len(part)
            hidden = hidden_positions(start, len(part), seen, spec.window, query.device)
            grouped = part.view(len(part), num_kv_heads, -1, head_size).permute(
                1, 2, 0, 3
            )  # [K, G, T, D]
            scores = grouped.flatten(1, 2) @ keys[:, :, :seen]  # [K, G·T, S]
            scores = scores.view(*grouped.shape[:3], seen)
            probabilities = _softmax(scores, hidden, spec).flatten(1, 2)  # [K, G·T, S]
            attended = (probabilities @ values[:, :seen]).view(grouped.shape)
            outputs.append(attended.permute(2, 0, 1, 3).reshape(part.shape))
        return torch.cat(outputs)


class BatchedBackend:
    """The backend of `fast` mode where no native one exists."""

    name = "batched"

    def __init__(self, device: torch.device) -> None:
        self._max_bytes = _CPU_BYTES if device.type == "cpu" else _CUDA_BYTES

    def kv_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The model's own: the products are in it."""
        return dtype

    def plan(self, batch: Batch) -> BatchedPlan:
        """Sort the step's sequences."""
        return BatchedPlan(batch, self._max_bytes)


def _softmax(scores: torch.Tensor, hidden: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
    """Probabilities in the scores' dtype, computed in float32."""
    scaled = scores.float() * spec.scaling
    if spec.softcap is not None:
        scaled = spec.softcap * torch.tanh(scaled / spec.softcap)
    return scaled.masked_fill_(hidden, -torch.inf).softmax(dim=-1).to(scores.dtype)
