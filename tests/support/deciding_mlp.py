"""A feed-forward whose code looks at what it computes, as no trace can."""

import torch
from torch import nn


class DecidingMlp(nn.Module):
    """Does what the one it is put around does."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.mlp(inputs)
        return outputs if float(outputs.abs().max()) < 1e30 else outputs.clamp(-1e30, 1e30)
