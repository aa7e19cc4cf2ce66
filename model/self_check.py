"""The proof, at load, that this model answers through the paged cache as it does by itself.

`attention.observe` sees what the attention of each layer is. What it can't see is whether a model
remembers anything elsewhere: a convolution over the last tokens, a state handed from row to row.
Such a model would answer wrongly without any error. So a short text goes through the cache in
scrambled pieces and through transformers' own attention whole, and a model whose answers differ is
refused.
"""

import torch
from transformers import PreTrainedModel

from model.attention.base import AttentionBackend, Step
from model.batch import Batch, BatchRow
from model.errors import ModelLoadError
from model.kv_cache import KVCache
from model.runner import ModelShape

_PIECES = (3, 1, 1) * 5
_BLOCK_SIZE = 4
_MAX_ERROR = 0.2
"""Of the median token, relative to its logits' spread: bfloat16 errs by a few hundredths, another
model by a large part. The median, because near ties in a router send single tokens elsewhere."""


def check_answers(model: PreTrainedModel, shape: ModelShape, backend: AttentionBackend) -> None:
    """Raise ModelLoadError when the model's answers through the cache aren't its own. Costs two
    passes over the weights; the model is left as it was."""
    num_tokens = min(sum(_PIECES), shape.max_positions)
    # Strides through the vocabulary, so that the tokens differ.
    token_ids = [(7 + i * 7919) % shape.vocab_size for i in range(num_tokens)]
    plain, paged = _plain(model, token_ids), _paged(model, shape, backend, token_ids)
    error = float(relative_error(plain, paged).median())
    if not error < _MAX_ERROR:
        raise ModelLoadError(
            f"models of type {model.config.model_type!r} can't be served: through the paged cache "
            f"their answers are not their own (off by {error:.0%} of the logits' spread), as if "
            "they remembered something besides keys and values"
        )


def relative_error(truth: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """How far each position's logits are off, relative to their spread over the vocabulary, both
    as root mean squares; a shift of all of them is no error. `[T, V]` to `[T]`."""
    truth, other = (x.float() - x.float().mean(-1, keepdim=True) for x in (truth, other))
    error: torch.Tensor = (other - truth).norm(dim=-1) / truth.norm(dim=-1)
    return error


@torch.inference_mode()
def _plain(model: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        ids = torch.tensor([token_ids], device=model.device)
        logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits[0].cpu()
        return logits
    finally:
        model.set_attn_implementation(implementation)


@torch.inference_mode()
def _paged(
    model: PreTrainedModel, shape: ModelShape, backend: AttentionBackend, token_ids: list[int]
) -> torch.Tensor:
    """All pieces in one step, the last first, as if each were a sequence of its own over the same
    blocks. A layer stores every key before it attends, so each piece finds its history there; what
    is remembered from row to row it finds wrong."""
    num_blocks = -(-len(token_ids) // _BLOCK_SIZE)
    cache = KVCache(shape.kv_shape(_BLOCK_SIZE, model.dtype), num_blocks, model.device)
    rows, start = [], 0
    for size in _PIECES:
        if piece := token_ids[start : start + size]:
            rows.append(BatchRow(piece, start, range(num_blocks - 1, -1, -1), has_logits=True))
        start += size
    batch = Batch.build(rows[::-1], _BLOCK_SIZE, model.device)
    output = model(
        input_ids=batch.token_ids[None],
        position_ids=batch.positions[None],
        use_cache=False,
        splice_step=Step(cache, batch, backend.plan(batch), shape.windows),
    )
    logits: torch.Tensor = output.logits[0][batch.positions.argsort()].cpu()
    return logits
