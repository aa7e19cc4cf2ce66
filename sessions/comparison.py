"""A prompt beside another turn's tokens: how far they are the same, and why no further. Pure."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Change(StrEnum):
    """Why a prompt leaves the other turn's tokens."""

    MODEL = "model"
    TOOLS = "tools"
    COMPACTED = "compacted"  # summed up, or without its oldest turns
    INPUT = "input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came of comparing; before it, the name of the turn that is to be compared with.

    `num_shared` are the leading tokens that both have; None: nobody asked, so they weren't counted.
    `change` None: the prompt goes on behind all that the other turn has, or ends before that.
    """

    turn_id: str
    is_found: bool = True
    num_shared: int | None = None
    change: Change | None = None

    def to_stored(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of_stored(cls, stored: dict[str, Any]) -> "Comparison":
        """The inverse of `to_stored`."""
        change = stored["change"]
        return cls(**{**stored, "change": None if change is None else Change(change)})
