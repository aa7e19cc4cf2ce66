"""What is given up first when memory is short. Pure functions of how a chain of blocks was used.

Every policy gives a value; the lowest goes first. Three things hold under each of them, for they
don't depend on taste: within a chain the tail goes before the head (whoever evicts takes leaves
only), so what many chains share goes last; what a later turn has superseded goes before what is
current; and a hint (`ttl_s`, `priority`) moves a chain in the order but locks nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import log2

_SCALE_S = 60.0
_HORIZON_S = 600.0


class EvictionPolicy(StrEnum):
    """`value` weighs return, cost and size; the others are there to compare with."""

    VALUE = "value"
    LRU = "lru"
    LFU = "lfu"
    FREQUENCY_LENGTH_AGE = "frequency_length_age"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How a chain of blocks was used. `return_cost_s` is what it would take to have it again:
    seconds to compute it, or to restore it where a lower tier has it too."""

    idle_s: float
    num_uses: int
    num_tokens: int
    num_bytes: int
    return_cost_s: float
    is_superseded: bool = False
    ttl_s: float = 0.0
    priority: int = 0


Score = tuple[bool, int, float]
"""Compared in order: current before superseded, then the hinted priority, then the value."""


def score(policy: EvictionPolicy, usage: Usage) -> Score:
    """The lowest goes first."""
    # A chain in its time to live counts as just used; clocks that jump back make nobody younger.
    idle_s = max(0.0, usage.idle_s - usage.ttl_s)
    return not usage.is_superseded, usage.priority, _VALUES[policy](usage, idle_s)


def return_probability(idle_s: float, num_uses: int) -> float:
    """How likely somebody comes back to a conversation within the next ten minutes.

    The waits between people's actions have a heavy tail (Barabási, "The origin of bursts and heavy
    tails in human dynamics", Nature 435, 2005), so the longer the wait, the longer it will go on.
    Modelled as a Lomax distribution of scale one minute, whose shape grows with the logarithm of
    how often they came back before: P(return in h | idle t) = 1 - ((t + s) / (t + s + h))^shape.
    """
    start = idle_s + _SCALE_S
    return float(1.0 - (start / (start + _HORIZON_S)) ** log2(2 + num_uses))


def _value(usage: Usage, idle_s: float) -> float:
    """Seconds that a byte can be expected to save."""
    saved_s = return_probability(idle_s, usage.num_uses) * usage.return_cost_s
    return saved_s / max(1, usage.num_bytes)


def _lru(usage: Usage, idle_s: float) -> float:
    return -idle_s


def _lfu(usage: Usage, idle_s: float) -> float:
    return float(usage.num_uses)


def _frequency_length_age(usage: Usage, idle_s: float) -> float:
    """Uses times length over age: long chains that are used often and were used just now stay."""
    return usage.num_uses * usage.num_tokens / (idle_s + 1.0)


_VALUES: dict[EvictionPolicy, Callable[[Usage, float], float]] = {
    EvictionPolicy.VALUE: _value,
    EvictionPolicy.LRU: _lru,
    EvictionPolicy.LFU: _lfu,
    EvictionPolicy.FREQUENCY_LENGTH_AGE: _frequency_length_age,
}
