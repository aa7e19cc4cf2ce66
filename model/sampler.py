"""From logits to a token id, one sequence at a time.

A draw's randomness is a hash of (seed, position), so the same seed gives the same tokens whatever
else is in the batch, and a preempted or continued reply goes on as it would have. The order of
the filters is the field's: bias and penalties, temperature, top-k, top-p, min-p. What a grammar
forbids is out before any of them.
"""

import hashlib
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from model.config import SamplingParams
from model.messages import SampledLogprobs, TokenLogprob

_LEAST_TEMPERATURE = 1e-30
"""As good as none, and no division by it is one by 0 in float32."""
_MAX_GROUP = 64
_GROUPS_A_TOKEN = 4
"""How many tokens stand for themselves by their largest while it is found what the top k may be."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One token to draw: `position` is its place in the sequence. Presence and frequency penalties
    count the reply's tokens, the repetition penalty those of the prompt too. `mask` has a bit for
    each token, set if it may be drawn; None: all may."""

    params: SamplingParams
    seed: int
    position: int
    token_ids: Sequence[int]
    num_prompt_tokens: int
    mask: bytes | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """A drawn token; `logprobs` if its draw asked for them."""

    token_id: int
    logprobs: SampledLogprobs | None = None


def sample(logits: torch.Tensor, draws: Sequence[Draw]) -> list[Sampled]:
    """A token for each row of `logits` `[B, V]`, float32; the rows are changed in place."""
    wanted = [draw.params.num_logprobs is not None for draw in draws]
    # Before any penalty: what is reported is what the model thinks.
    raw = {i: row.log_softmax(dim=-1) for i, row in enumerate(logits) if wanted[i]}
    for row, draw in zip(logits, draws, strict=True):
        _penalise(row, draw)
        if draw.mask is not None:
            _forbid(row, draw.mask)
    token_ids = [
        _draw(row, draw) if draw.params.temperature > 0 else _likeliest(row)
        for row, draw in zip(logits, draws, strict=True)
    ]
    return [
        Sampled(token_id, _logprobs(raw[i], token_id, draws[i].params) if i in raw else None)
        for i, token_id in enumerate(token_ids)
    ]


def _logprobs(log_probs: torch.Tensor, token_id: int, params: SamplingParams) -> SampledLogprobs:
    best = log_probs.topk(min(params.num_logprobs or 0, len(log_probs)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return SampledLogprobs(
        sampled=TokenLogprob(token_id, float(log_probs[token_id])),
        likeliest=tuple(TokenLogprob(i, value) for i, value in pairs),
    )


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments: 53 bits of a BLAKE2b hash."""
    key = struct.pack("<QQ", seed & (1 << 64) - 1, position)
    digest = hashlib.blake2b(key, digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def _penalise(row: torch.Tensor, draw: Draw) -> None:
    """Bias and penalties: presence and frequency as OpenAI defines them, repetition as in CTRL
    (Keskar et al. 2019): positive logits of seen tokens are divided, negative ones multiplied."""
    params = draw.params
    if params.repetition_penalty != 1.0 and draw.token_ids:
        seen = torch.tensor(list(set(draw.token_ids)), device=row.device)
        logits = row[seen]
        row[seen] = torch.where(
            logits > 0, logits / params.repetition_penalty, logits * params.repetition_penalty
        )
    added = dict(params.logit_bias)
    if params.presence_penalty or params.frequency_penalty:
        for token_id, num in Counter(draw.token_ids[draw.num_prompt_tokens :]).items():
            penalty = params.presence_penalty + params.frequency_penalty * num
            added[token_id] = added.get(token_id, 0.0) - penalty
    if added:  # all at once: on a GPU each change is a kernel of its own
        places = torch.tensor(list(added), device=row.device)
        row[places] += torch.tensor(list(added.values()), dtype=row.dtype, device=row.device)


def _forbid(row: torch.Tensor, mask: bytes) -> None:
    packed = torch.frombuffer(bytearray(mask), dtype=torch.uint8).to(row.device)
    bits = packed[:, None] >> torch.arange(8, dtype=torch.uint8, device=row.device) & 1
    row.masked_fill_(bits.flatten()[: len(row)] == 0, -torch.inf)


def _likeliest(row: torch.Tensor) -> int:
    # On a CPU torch's own takes twenty times as long.
    return int(row.numpy().argmax() if row.device.type == "cpu" else row.argmax())


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Tokens that may be drawn, None: all of them in their order, and their weights, both `[C]`."""

    token_ids: torch.Tensor | None
    weights: torch.Tensor


def _draw(row: torch.Tensor, draw: Draw) -> int:
    """Inverse transform sampling over the candidates in their order."""
    # Weights are probabilities but for a factor. The largest is 1, so that no temperature, however
    # small, makes it infinite.
    temperature = max(draw.params.temperature, _LEAST_TEMPERATURE)
    candidates = _candidates(((row - row.max()) / temperature).exp(), draw.params)
    cumulative = candidates.weights.cumsum(dim=-1)
    target = uniform(draw.seed, draw.position) * cumulative[-1:]
    at = min(int(torch.searchsorted(cumulative, target, right=True)), len(cumulative) - 1)
    return at if candidates.token_ids is None else int(candidates.token_ids[at])


def _candidates(weights: torch.Tensor, params: SamplingParams) -> _Candidates:
    """What top-k, top-p and min-p leave, heaviest first; all, in their order, without them."""
    if not params.top_k and params.top_p >= 1.0 and params.min_p <= 0.0:
        return _Candidates(None, weights.double())
    total = weights.sum(dtype=torch.float64)
    # Sorting a whole vocabulary takes longer than all else here. What is no number isn't below.
    token_ids = (~(weights < _least(weights, float(total), params))).nonzero()[:, 0]
    values, order = weights[token_ids].double().sort(descending=True, stable=True)
    if params.top_k:
        values = values[: params.top_k]
        total = values.sum()
    keep = torch.ones_like(values, dtype=torch.bool)
    if params.top_p < 1.0:
        # A token stays as long as those before it don't reach the mass.
        keep &= values.cumsum(dim=-1) - values < params.top_p * total
    if params.min_p > 0.0:
        keep &= values >= params.min_p
    num_kept = max(1, int(keep.sum()))  # both filters keep the head of a falling list
    return _Candidates(token_ids[order[:num_kept]], values[:num_kept])


def _least(weights: torch.Tensor, total: float, params: SamplingParams) -> float:
    """A weight below which no token gets past the filters; above it some may that don't."""
    least = [0.0, params.min_p * (1 - 1e-6)]
    if params.top_k:
        least.append(_below_top(weights, params.top_k))
    elif params.top_p < 1.0:
        # All tokens below the mean of what top-p leaves out have no more together than it does; the
        # half is for rounding.
        least.append(0.5 * (1.0 - params.top_p) * total / len(weights))
    return max(least)


def _below_top(weights: torch.Tensor, k: int) -> float:
    """A weight that at least `k` tokens reach, if there are so many: the k-th largest of groups'
    largest, for groups are few and quickly looked through."""
    size = min(_MAX_GROUP, max(1, len(weights) // (_GROUPS_A_TOKEN * k)))
    largest = weights[: len(weights) // size * size].view(-1, size).amax(dim=-1)
    return float(largest.topk(k).values[-1]) if k <= len(largest) else 0.0
