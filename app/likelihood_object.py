"""How likely a token was, as chat completions and responses write it. Pure."""

from typing import Any

from sessions.likelihoods import TokenLikelihood
from sessions.token_text import TokenText

Json = dict[str, Any]


def likelihood_object(each: TokenLikelihood) -> Json:
    """Build an entry: the token, and those that would have been likelier or nearly so."""
    others = [_token(token, logprob) for token, logprob in each.likeliest]
    return {**_token(each.token, each.logprob), "top_logprobs": others}


def _token(token: TokenText, logprob: float) -> Json:
    return {"token": token.text, "logprob": logprob, "bytes": list(token.data)}
