"""What a turn was asked under, beside its input and its sampling. No I/O.

Every turn has terms; those of a plain turn say nothing. They are the turn's alone: the next one
has its own, and what it does not name it does not inherit.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a turn is made.

    `instructions` stand in the session's place; None: the session's own.
    `has_reply` False: the turn only puts its input in, and what follows comes right behind it.
    `summary` stands for all that came before the turn; None: nothing is left out.
    `shown` is what the surface that asked shows again of its request, as JSON values.
    """

    instructions: str | None = None
    has_reply: bool = True
    summary: str | None = None
    shown: dict[str, Any] = field(default_factory=dict)

    def to_stored(self) -> dict[str, Any]:
        """As JSON; only what differs from a plain turn's."""
        values: dict[str, Any] = {
            "instructions": self.instructions,
            "has_reply": None if self.has_reply else False,
            "summary": self.summary,
            "shown": self.shown or None,
        }
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def of_stored(cls, stored: dict[str, Any]) -> "Terms":
        """The inverse of `to_stored`; what a newer version added is left out."""
        return cls(**{k: v for k, v in stored.items() if k in cls.__dataclass_fields__})


PLAIN = Terms()
"""Those of a turn that was asked for with its input and nothing else."""
