"""Where prompts are made from: the store, or what stands before it."""

from datetime import datetime
from typing import Protocol

from sessions.token_log import TokenSpan
from sessions.types import SessionId, Turn, TurnId


class TurnLogs(Protocol):
    """Logs, and the words behind them."""

    async def clock_at(self, session_id: SessionId) -> datetime:
        """What the session's chat template is told the time is."""
        ...

    async def spans(self, turn_id: TurnId) -> tuple[TokenSpan, ...]:
        """The turn's span and those of its bases, oldest first."""
        ...

    async def base_turns(self, turn_id: TurnId) -> tuple[Turn, ...]:
        """The turns whose words are in a turn's log, itself last."""
        ...
