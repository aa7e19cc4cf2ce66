"""From where a new sequence takes its computed tokens. Pure functions."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from model.prefix_index import BlockHash


@dataclass(frozen=True, slots=True)
class ClaimSource:
    """A run of computed tokens: the first `num_tokens` of `token_ids`, lying in `block_ids`.

    `block_hashes` are those of its full blocks, as far as they are known, salted behind the first
    `num_public_tokens`.
    `turn_id` names the parked table it is, if it is one; `is_own` says that the table belongs to
    the claiming conversation; `is_whole` that nothing of the table would be lost by taking it up.
    """

    token_ids: Sequence[int]
    num_tokens: int
    block_ids: Sequence[int]
    block_hashes: Sequence[BlockHash] = ()
    num_public_tokens: int = 0
    turn_id: str | None = None
    is_own: bool = False
    is_whole: bool = False


def common_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading items are equal. Bisection over slice comparisons, which run in C."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while low < high:
        # The first `low` are equal; how many are lies between `low` and `high`, both included.
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def best_table(token_ids: Sequence[int], tables: Iterable[ClaimSource]) -> ClaimSource | None:
    """The table that shares the longest run of computed tokens with `token_ids`, cut to that run;
    the first of equals, None if none shares any.

    One token less than all at the most: the last is always computed.
    """
    limit = len(token_ids) - 1
    prompt = _without_copies(token_ids)
    best: ClaimSource | None = None
    for table in tables:
        num_comparable = min(limit, table.num_tokens)
        computed = _without_copies(table.token_ids)
        common = common_prefix_length(prompt[:num_comparable], computed[:num_comparable])
        if common > (best.num_tokens if best else 0):
            is_whole = table.is_own and common == table.num_tokens
            best = replace(table, num_tokens=common, is_whole=is_whole)
    return best


def _without_copies(token_ids: Sequence[int]) -> Sequence[int]:
    """The ids, such that slices of them are views: a copy of a long history costs more than the
    comparison. The view must not outlive the call, for an array can't grow under one."""
    return memoryview(token_ids) if isinstance(token_ids, array) else token_ids
