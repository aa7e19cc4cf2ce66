"""Runs the model once a step: weights, cache tensors, forward pass, sampling.

Knows tensors and rows of token ids; nothing of who is scheduled and why.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from model.attention.base import AttentionBackend, Step
from model.attention.cpu import CpuPlan
from model.attention.observe import observe
from model.batch import Batch, BatchRow
from model.block_supply import BlockEdit
from model.compiled.step import StepSource
from model.kv_cache import KVCache, KVShape
from model.messages import CompiledStats
from model.sampler import Draw, Sampled, sample
from model.support import max_context_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The numbers of a decoder that the engine needs."""

    num_layers: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    max_positions: int
    windows: tuple[int | None, ...]
    """How many last positions each layer's tokens see; None when all."""

    @classmethod
    def of(cls, model: PreTrainedModel) -> "ModelShape":
        """Run the model once on a few tokens to see them. Raises ModelLoadError with the reason
        when its attention can't be paged."""
        layers = observe(model)
        config = model.config.get_text_config()
        return cls(
            num_layers=len(layers),
            num_kv_heads=layers[0].num_kv_heads,
            head_size=layers[0].head_size,
            vocab_size=config.vocab_size,
            max_positions=max_context_tokens(model.config),
            windows=tuple(layer.window for layer in layers),
        )

    def kv_shape(self, block_size: int, dtype: torch.dtype) -> KVShape:
        """What one block holds."""
        return KVShape(
            num_layers=self.num_layers,
            block_size=block_size,
            num_kv_heads=self.num_kv_heads,
            head_size=self.head_size,
            dtype=dtype,
        )


class ModelRunner:
    """One loaded model and its cache. `num_rows` counts the rows that entered its embedding, by a
    hook on the embedding itself, so that nothing can reach the model uncounted."""

    def __init__(
        self,
        model: PreTrainedModel,
        windows: Sequence[int | None],
        cache: KVCache,
        backend: AttentionBackend,
        compiled: StepSource | None = None,
    ) -> None:
        self.blocks = cache
        self.num_rows = 0
        self._model = model
        self._windows = tuple(windows)
        self._backend = backend
        self._compiled = compiled
        self._device = model.device
        model.get_input_embeddings().register_forward_pre_hook(self._count_rows)

    @torch.inference_mode()
    def edit(self, edits: Sequence[BlockEdit]) -> None:
        """Carry out edits of blocks; they are done when this returns."""
        self.blocks.edit(edits)
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()  # transfers run on streams of their own

    @torch.inference_mode()
    def forward(self, rows: Sequence[BatchRow], edits: Sequence[BlockEdit]) -> torch.Tensor:
        """Edit blocks, then compute every row once; the logits behind the rows that want them,
        float32 `[B, V]`."""
        self.blocks.edit(edits)
        batch = Batch.build(rows, self.blocks.shape.block_size, self._device)
        plan = self._backend.plan(batch)
        if self._compiled is not None and isinstance(plan, CpuPlan):
            found = self._run_compiled(self._compiled, batch, plan)
            if found is not None:
                return found
        output = self._model(
            input_ids=batch.token_ids[None],
            position_ids=batch.positions[None],
            use_cache=False,
            logits_to_keep=batch.logits_rows,
            splice_step=Step(self.blocks, batch, plan, self._windows),
        )
        logits: torch.Tensor = output.logits[0].float()
        return logits

    def _run_compiled(self, source: StepSource, batch: Batch, plan: CpuPlan) -> torch.Tensor | None:
        """The logits by the compiled step; None if there is none for this batch, or it fails:
        whatever it has stored then is stored again."""
        step = source.step_for(batch)
        if step is None:
            return None
        # The embedding is the model's own, whose hook counts the rows.
        embeddings = self._model.get_input_embeddings()(batch.token_ids)
        try:
            return step.run(embeddings, batch, plan, self.blocks)
        except RuntimeError as exc:
            source.give_up(str(exc))
            return None

    def compiled(self) -> CompiledStats:
        """How it stands with the compiled step."""
        return CompiledStats() if self._compiled is None else self._compiled.stats()

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, draws: Sequence[Draw]) -> list[Sampled]:
        """A token for each row; penalties change `logits` in place."""
        return sample(logits, draws)

    def _count_rows(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self.num_rows += inputs[0].numel()
