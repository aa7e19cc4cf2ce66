"""What the sessions' manager is set up with."""

from collections.abc import Callable
from dataclasses import dataclass

from sessions.turn import RunnerRules
from sessions.types import Turn
from sessions.validation import MAX_INPUT_CHARS


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerConfig:
    """`runner_id` names this server among those on one database, and must survive its restart:
    by it a server knows the turns that it left behind."""

    runner_id: str
    lease_s: float = 30
    checkpoint_s: float = 1.0
    cancel_grace_s: float = 5.0
    max_input_chars: int = MAX_INPUT_CHARS
    # That may run or wait here; one more is refused before anything of it is kept.
    max_turns: int = 1088
    # System prompts whose blocks all owners may share.
    public_instructions: frozenset[str] = frozenset()
    # Whether the model gives sessions titles while nobody else wants it.
    auto_titles: bool = False
    # How long a deletion can be undone.
    delete_grace_s: float = 86400.0
    # Hears of each turn that has ended, in the task that it ran in.
    on_turn_ended: Callable[[Turn], None] = lambda _turn: None

    @property
    def runner_rules(self) -> RunnerRules:
        """What each turn's runner goes by."""
        return RunnerRules(
            lease_s=self.lease_s,
            checkpoint_s=self.checkpoint_s,
            cancel_grace_s=self.cancel_grace_s,
        )
