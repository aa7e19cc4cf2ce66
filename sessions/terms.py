"""What a turn was asked under, beside its input and its sampling. No I/O.

Every turn has terms; those of a plain turn say nothing. They are the turn's alone: the next one
has its own, and what it does not name it does not inherit.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from model.grammar import Grammar, GrammarKind
from sessions.comparison import Comparison
from sessions.tools import Tool, ToolChoice, ToolMode

FREE = ToolChoice()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a turn is made.

    `instructions` stand in the session's place; None: the session's own.
    `has_reply` False: the turn only puts its input in, and what follows comes right behind it.
    `summary` stands for all that came before the turn; None: nothing is left out.
    `is_parsed`: its reply is taken apart into items; otherwise it is one message.
    `tools` are what the model is told it may call, `choice` what of them it may; `form` is what
    holds its answer.
    With `truncates`, a conversation that is too long loses its oldest turns: `num_dropped_turns`.
    `comparison` is with another turn's prompt and reply; None: nothing is to be said of one.
    `is_background`: nobody waits for it, so its events tell that it waits itself.
    `shown` is what the surface that asked shows again of its request, as JSON values.
    """

    instructions: str | None = None
    has_reply: bool = True
    summary: str | None = None
    is_parsed: bool = False
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = FREE
    form: Grammar | None = None
    truncates: bool = False
    num_dropped_turns: int = 0
    comparison: Comparison | None = None
    is_background: bool = False
    shown: dict[str, Any] = field(default_factory=dict)

    def to_stored(self) -> dict[str, Any]:
        """As JSON; only what differs from a plain turn's."""
        values: dict[str, Any] = {
            "instructions": self.instructions,
            "has_reply": None if self.has_reply else False,
            "summary": self.summary,
            "is_parsed": self.is_parsed or None,
            "tools": [asdict(tool) for tool in self.tools] or None,
            "choice": None if self.choice == FREE else _choice_to_stored(self.choice),
            "form": None if self.form is None else asdict(self.form),
            "truncates": self.truncates or None,
            "num_dropped_turns": self.num_dropped_turns or None,
            "comparison": None if self.comparison is None else self.comparison.to_stored(),
            "is_background": self.is_background or None,
            "shown": self.shown or None,
        }
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def of_stored(cls, stored: dict[str, Any]) -> "Terms":
        """The inverse of `to_stored`; what a newer version added is left out."""
        known = {k: v for k, v in stored.items() if k in cls.__dataclass_fields__}
        if "tools" in known:
            known["tools"] = tuple(Tool(**tool) for tool in known["tools"])
        if "choice" in known:
            known["choice"] = _choice_of_stored(known["choice"])
        if "form" in known:
            kind = GrammarKind(known["form"]["kind"])
            known["form"] = Grammar(**{**known["form"], "kind": kind})
        if "comparison" in known:
            known["comparison"] = Comparison.of_stored(known["comparison"])
        return cls(**known)


def _choice_to_stored(choice: ToolChoice) -> dict[str, Any]:
    names = None if choice.names is None else sorted(choice.names)
    return {"mode": choice.mode.value, "names": names, "is_parallel": choice.is_parallel}


def _choice_of_stored(stored: dict[str, Any]) -> ToolChoice:
    names = None if stored["names"] is None else frozenset(stored["names"])
    return ToolChoice(mode=ToolMode(stored["mode"]), names=names, is_parallel=stored["is_parallel"])


PLAIN = Terms()
"""Those of a turn that was asked for with its input and nothing else."""
