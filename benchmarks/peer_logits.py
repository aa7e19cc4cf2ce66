"""What a running llama.cpp server thinks comes next, position by position of a text."""

from collections.abc import Sequence

import aiohttp
import torch


async def peer_log_probs(
    url: str, token_ids: Sequence[int], positions: Sequence[int], vocab_size: int
) -> torch.Tensor:
    """Log probabilities `[len(positions), vocab_size]` behind each of the positions, which grow, so
    that the server computes a few tokens for each.

    Raises aiohttp.ClientError, and RuntimeError when the server tells of fewer tokens.
    """
    found = torch.full((len(positions), vocab_size), torch.nan)
    async with aiohttp.ClientSession(raise_for_status=True) as client:
        for row, position in zip(found, positions, strict=True):
            body = _asking(token_ids[: position + 1], vocab_size)
            async with client.post(f"{url}/completion", json=body) as answer:
                told = (await answer.json())["completion_probabilities"][0]["top_logprobs"]
            if len(told) != vocab_size:
                raise RuntimeError(f"{url} told {len(told)} of {vocab_size} tokens' probabilities")
            row[[entry["id"] for entry in told]] = torch.tensor([e["logprob"] for e in told])
    return found


def _asking(token_ids: Sequence[int], vocab_size: int) -> dict[str, object]:
    return {
        "prompt": list(token_ids),
        "n_predict": 1,
        "n_probs": vocab_size,
        "temperature": 0,
        "cache_prompt": True,
    }
