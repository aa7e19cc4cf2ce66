"""The proof, at load, that this model answers through the paged cache as it does by itself.

`attention.observe` sees what the attention of each layer is. What it can't see is whether a model
remembers anything elsewhere: a convolution over the last tokens, a state handed from row to row.
Such a model would answer wrongly without any error. So a short text goes through the cache in
scrambled pieces and through transformers' own attention whole, and a model whose answers differ is
refused.
"""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from model.attention.base import AttentionBackend, Step
from model.batch import Batch, BatchRow
from model.errors import ModelLoadError
from model.kv_cache import KVCache, KVShape
from model.runner import ModelShape

_NUM_TOKENS = 25
_PIECE_STARTS = (0, 3, 4)
"""Of each five positions: pieces of three, one and one, for chunks and decoding alike."""
_BLOCK_SIZE = 4
_MAX_ERROR = 0.2
"""Of the median token, relative to its logits' spread: bfloat16 errs by a few hundredths, another
model by a large part. The median, because near ties in a router send single tokens elsewhere."""


def check_answers(
    model: PreTrainedModel,
    shape: ModelShape,
    backend: AttentionBackend,
    kv_dtype: torch.dtype | None = None,
) -> None:
    """Raise ModelLoadError when the model's answers through the cache, by default in the model's
    own dtype, aren't its own. Costs two passes over the weights; the model is left as it was."""
    num_tokens = min(_NUM_TOKENS, shape.max_positions)
    # Strides through the vocabulary, so that the tokens differ.
    token_ids = [(7 + i * 7919) % shape.vocab_size for i in range(num_tokens)]
    # The last pieces first, so that whatever is handed from row to row is handed to the wrong one.
    starts = [i for i in range(num_tokens) if i % 5 in _PIECE_STARTS]
    ends = [*starts[1:], num_tokens]
    pieces = [range(start, end) for start, end in zip(starts, ends, strict=True)][::-1]
    kv = shape.kv_shape(_BLOCK_SIZE, kv_dtype or model.dtype)
    paged = paged_logits(model, shape.windows, kv, backend, token_ids, [pieces])
    error = float(relative_error(plain_logits(model, token_ids), paged).median())
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
def plain_logits(model: PreTrainedModel, token_ids: Sequence[int]) -> torch.Tensor:
    """transformers' own attention over the whole text; `[T, V]` on the CPU."""
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        ids = torch.tensor([list(token_ids)], device=model.device)
        logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits[0].cpu()
        return logits
    finally:
        model.set_attn_implementation(implementation)


@torch.inference_mode()
def paged_logits(
    model: PreTrainedModel,
    windows: Sequence[int | None],
    kv: KVShape,
    backend: AttentionBackend,
    token_ids: Sequence[int],
    steps: Sequence[Sequence[range]],
) -> torch.Tensor:
    """The text through a small paged cache, each step computing its ranges of positions; `[T, V]`
    on the CPU. Ranges of one step are as sequences of their own over the same blocks: a layer
    stores every key before it attends, so each range finds its history whatever their order."""
    num_blocks = -(-len(token_ids) // kv.block_size)
    cache = KVCache(kv, num_blocks, model.device)
    blocks = range(num_blocks - 1, -1, -1)
    found: dict[int, torch.Tensor] = {}
    for step in steps:
        rows = [
            BatchRow(token_ids[part.start : part.stop], part.start, blocks, has_logits=True)
            for part in step
        ]
        batch = Batch.build(rows, kv.block_size, model.device)
        output = model(
            input_ids=batch.token_ids[None],
            position_ids=batch.positions[None],
            use_cache=False,
            splice_step=Step(cache, batch, backend.plan(batch), windows),
        )
        logits = output.logits[0].float().cpu()
        found.update(zip(batch.positions.tolist(), logits, strict=True))
    return torch.stack([found[i] for i in range(len(token_ids))])
