"""A compiled step, loaded: torch's package with this model's own weights.

The weights are used where they lie, none is copied. A step takes batches of at most `max_rows`
tokens, for that is what it was traced for.
"""

from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file
from torch import nn

from model.attention.cpu import CpuPlan
from model.batch import Batch
from model.compiled.folder import CONSTANTS, PACKAGE
from model.kv_cache import KVCache
from model.messages import CompiledStats

_MODEL_NAME = "model"
_ROOT = "model."
"""In front of each weight's name: the model is a part of the module that was traced."""


class CompiledStep:
    """Runs the model over a batch. Loading raises RuntimeError, OSError or ValueError."""

    def __init__(self, folder: Path, model: nn.Module, max_rows: int) -> None:
        self._max_rows = max_rows
        # Without a lock of its own: whoever has it loaded tries it, and from then on the engine's
        # thread alone calls it.
        self._loader = torch._C._aoti.AOTIModelPackageLoader(
            str(folder / PACKAGE), _MODEL_NAME, True, 1, -1
        )
        self._constants = _find_constants(
            self._loader.get_constant_fqns(), model, load_file(folder / CONSTANTS)
        )
        self._loader.load_constants(self._constants, False, True, user_managed=True)

    def takes(self, batch: Batch) -> bool:
        """Whether there are not too many tokens."""
        return len(batch.positions) <= self._max_rows

    def run(
        self, embeddings: torch.Tensor, batch: Batch, plan: CpuPlan, cache: KVCache
    ) -> torch.Tensor:
        """Store keys and values and compute the logits of the rows that want them, float32
        `[R, V]`. Raises RuntimeError, and may have stored some then."""
        lists = [torch.stack(batch.places), plan.tables, plan.sequences]
        # The graph has one row's logits at least.
        wanted = batch.logits_rows if len(batch.logits_rows) else torch.zeros(1, dtype=torch.long)
        (logits,) = self._loader.run([embeddings, batch.positions, cache.tensor, *lists, wanted])
        return logits[: len(batch.logits_rows)]


class StepSource(Protocol):
    """Where the runner has its compiled step from."""

    def step_for(self, batch: Batch) -> CompiledStep | None:
        """Called before each step: the compiled one, if there is one by now that takes it."""
        ...

    def give_up(self, reason: str) -> None:
        """The step that it gave has failed: it gives none any more."""
        ...

    def stats(self) -> CompiledStats:
        """How it stands."""
        ...


def _find_constants(
    names: list[str], model: nn.Module, traced: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Each constant's tensor: the model's own, or what the trace found in its code."""
    return {name: _of_model(name, model, traced) for name in names}


def _of_model(name: str, model: nn.Module, traced: dict[str, torch.Tensor]) -> torch.Tensor:
    found: object = model
    for part in name.removeprefix(_ROOT).split("."):
        found = getattr(found, part, None)
    if isinstance(found, torch.Tensor):
        return found.detach()
    if name in traced:
        return traced[name]
    raise ValueError(f"the model has no {name}")
