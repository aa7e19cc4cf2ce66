"""From where a new sequence takes its computed tokens. Pure functions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ClaimSource:
    """A run of computed tokens: the first `num_tokens` of `token_ids`, lying in `block_ids`.

    `turn_id` names the parked table it is, if it is one; `is_own` says that the table belongs to
    the claiming conversation; `is_whole` that nothing of the table would be lost by taking it up.
    """

    token_ids: Sequence[int]
    num_tokens: int
    block_ids: Sequence[int]
    turn_id: str | None = None
    is_own: bool = False
    is_whole: bool = False


def common_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading items are equal. Bisection over slice comparisons, which run in C."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while (
        low < high
    ):  # left[:low] == right[:low], and left[:high] != right[:high] or high == low + 1
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def best_source(
    token_ids: Sequence[int],
    tables: Iterable[ClaimSource],
    chain: Sequence[int],
    block_size: int,
) -> ClaimSource:
    """The longest run that prefixes `token_ids`, one token less at the most: the last is always
    computed. Tables are compared token by token and win a tie against the block chain; among
    tables the first wins."""
    limit = len(token_ids) - 1
    best = ClaimSource(token_ids, min(len(chain) * block_size, limit), chain)
    found = False
    for table in tables:
        common = common_prefix_length(token_ids[:limit], table.token_ids[: table.num_tokens])
        if common > best.num_tokens or (common == best.num_tokens > 0 and not found):
            is_whole = table.is_own and common == table.num_tokens
            best, found = replace(table, num_tokens=common, is_whole=is_whole), True
    return best
