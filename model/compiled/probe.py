"""The proof, before a compiled step is used, that it answers as the model's own modules do.

Some rows behind a text each are computed by the modules while the engine is put together, and later
by the compiled step, which is not used if the answers differ. The texts' keys and values are the
model's own: behind others, such as random ones, some models turn rounding into other answers.
"""

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from model.attention.base import Step
from model.attention.cpu import CpuBackend
from model.batch import Batch, BatchRow
from model.compiled.step import CompiledStep
from model.kv_cache import KVCache, KVShape
from model.self_check import relative_error

_STEPS = (((5, 1),), ((0, 1), (9, 1), (31, 1)), ((0, 5), (20, 6), (3, 1)))
"""Of each sequence how many tokens are there and how many are computed, step by step: one row,
which is compiled like several, three, and chunks; no more than have activations of 16 bits."""
_STRIDE = 7919
"""Through the vocabulary, so that the tokens differ."""
_MAX_ERROR = 0.2
"""Of a row, relative to its logits' spread. Bfloat16 errs by hundredths, another model by far."""


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """One step and the modules' answer."""

    embeddings: torch.Tensor
    batch: Batch
    cache: KVCache
    logits: torch.Tensor


class Probe:
    """What a model answers. Costs six small steps, and the memory of some rows of logits."""

    @torch.inference_mode()
    def __init__(
        self,
        model: PreTrainedModel,
        windows: tuple[int | None, ...],
        kv: KVShape,
        backend: CpuBackend,
    ) -> None:
        self._backend = backend
        self._samples = [_sample(model, windows, kv, backend, spans) for spans in _STEPS]

    @property
    def embedding_size(self) -> int:
        """E: values of one token's embedding."""
        return self._samples[0].embeddings.shape[-1]

    @torch.inference_mode()
    def error(self, step: CompiledStep) -> float:
        """How far the worst row is off, relative to its logits' spread."""
        errors = [0.0]
        for sample in self._samples:
            plan = self._backend.plan(sample.batch)
            logits = step.run(sample.embeddings, sample.batch, plan, sample.cache)
            errors.append(float(relative_error(sample.logits, logits).max()))
        return max(errors, key=lambda error: (error != error, error))

    def check(self, step: CompiledStep) -> None:
        """Raise ValueError when the step's answers are not the model's."""
        error = self.error(step)
        if not error < _MAX_ERROR:
            raise ValueError(
                f"its answers are not the model's (off by {error:.0%} of the logits' spread)"
            )


def _sample(
    model: PreTrainedModel,
    windows: tuple[int | None, ...],
    kv: KVShape,
    backend: CpuBackend,
    spans: tuple[tuple[int, int], ...],
) -> _Sample:
    num_blocks = -(-max(start + num for start, num in spans) // kv.block_size)
    cache = KVCache(kv, num_blocks * len(spans), model.device)
    tables = [range(i * num_blocks, (i + 1) * num_blocks) for i in range(len(spans))]
    vocab_size = model.get_input_embeddings().weight.shape[0]

    def compute(rows: list[BatchRow]) -> tuple[Batch, torch.Tensor]:
        batch = Batch.build(rows, kv.block_size, model.device)
        # By their ids, as the engine computes them: some models make more of those than embeddings.
        output = model(
            input_ids=batch.token_ids[None],
            position_ids=batch.positions[None],
            use_cache=False,
            logits_to_keep=batch.logits_rows,
            splice_step=Step(cache, batch, backend.plan(batch), windows),
        )
        return batch, output.logits[0].float()

    texts = [
        [(7 + (11 * i + j) * _STRIDE) % vocab_size for j in range(start + num)]
        for i, (start, num) in enumerate(spans)
    ]
    places = [
        (text, start, table) for text, (start, _), table in zip(texts, spans, tables, strict=True)
    ]
    compute([BatchRow(text[:n], 0, table, has_logits=True) for text, n, table in places if n])
    batch, logits = compute(
        [BatchRow(text[n:], n, table, has_logits=True) for text, n, table in places]
    )
    embeddings: torch.Tensor = model.get_input_embeddings()(batch.token_ids)
    return _Sample(embeddings, batch, cache, logits)
