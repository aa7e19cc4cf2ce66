"""The compiled kernels as torch shows them: what each part of the engine uses of them, together."""

from collections.abc import Sequence
from typing import Protocol

import torch

from model.few_rows import LinearOps
from model.native.copier import CopyOps
from model.quantized_linear import QuantizedOps


class NativeOps(LinearOps, QuantizedOps, CopyOps, Protocol):
    """The compiled operators, as torch shows them."""

    def attend(
        self,
        output: torch.Tensor,
        query: torch.Tensor,
        kv: torch.Tensor,
        tables: torch.Tensor,
        sequences: torch.Tensor,
        *options: float,
    ) -> None:
        """Attention into `output`; the options are scaling, window, soft cap and level."""
        ...

    def attend_step(self, kv: torch.Tensor, *tensors: torch.Tensor | float) -> torch.Tensor:
        """Store one layer's keys and values in `kv`, the whole cache, and attend. What follows are
        query `[T, H, D]`, key and value `[T, K, D]`, places `[2, T]`, tables and sequences, the
        layer's number and the options of `attend`; the output is `[T, H, D]`."""
        ...

    def level_names(self) -> str:
        """The levels of instruction sets that this CPU has, ascending, with a space between."""
        ...


def levels(ops: NativeOps) -> Sequence[str]:
    """The names of the levels that can run here, the best one last."""
    return ops.level_names().split()
