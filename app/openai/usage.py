"""What a completion used: computed rows, and no guesses."""

from collections.abc import Sequence
from typing import Any

from model.messages import ClaimReport
from sessions.completion_events import CompletionFinished

Json = dict[str, Any]


def usage_of(claims: Sequence[ClaimReport], ends: Sequence[CompletionFinished]) -> Json:
    """Build chat's usage: of each prompt, as its first reply claimed it, and of all replies.

    The cached and the written tokens are parts of the prompt's.
    """
    num_prompt = sum(claim.num_prompt_tokens for claim in claims)
    num_reply = sum(len(end.finished.token_ids) for end in ends)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_reply,
        "total_tokens": num_prompt + num_reply,
        "prompt_tokens_details": {
            "cached_tokens": sum(claim.num_reused for claim in claims),
            "cache_write_tokens": sum(claim.computed for claim in claims),
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": sum(end.num_reasoning_tokens for end in ends),
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
