"""Paged attention on the CPU by the compiled kernels of `model.native`: keys and values
are read where they lie, through the block tables, for decoding and for prefill chunks alike.

Queries may be float32 where these are bfloat16. Sums are kept in float32 whatever the cache's
dtype. In what order they are taken depends on the number of threads and on the batch, so this is no
backend of `exact` mode.
"""

import torch

from model.attention.base import AttentionSpec
from model.batch import Batch
from model.native.operators import NativeOps, levels


class CpuPlan:
    """One step's tables end to end, and where each sequence is in them: of each where its table
    starts, its first row of T, the one behind its last, and S."""

    def __init__(self, batch: Batch, ops: NativeOps, level: int) -> None:
        self._attend = ops.attend
        self._level = level
        self.tables = torch.cat(batch.tables)
        sequences, start = [], 0
        for table, (begin, end), length in zip(batch.tables, batch.spans, batch.ends, strict=True):
            sequences.append((start, begin, end, length))
            start += len(table)
        self.sequences = torch.tensor(sequences)  # [B, 4]

    def attend(self, query: torch.Tensor, kv: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
        """See `AttentionPlan`."""
        if query.stride(-1) != 1:
            query = query.contiguous()
        output = torch.empty(query.shape, dtype=query.dtype)
        self._attend(
            output,
            query,
            kv,
            self.tables,
            self.sequences,
            spec.scaling,
            spec.window or 0,
            spec.softcap or 0.0,
            self._level,
        )
        return output


class CpuBackend:
    """The backend of `fast` mode on a CPU. `level` names one of `levels`, by default the best."""

    name = "cpu"

    def __init__(self, ops: NativeOps, level: str | None = None) -> None:
        self.ops = ops
        self._level = -1 if level is None else levels(ops).index(level)

    @staticmethod
    def kv_dtype(dtype: torch.dtype) -> torch.dtype:
        """16 bits also where a model computes in 32: half the memory, and half of what decoding
        waits for. The kernels make them floats as they read."""
        return torch.bfloat16 if dtype is torch.float32 else dtype

    def plan(self, batch: Batch) -> CpuPlan:
        """Lay the tables end to end."""
        return CpuPlan(batch, self.ops, self._level)
