"""What a search finds, as values."""

from dataclasses import dataclass

from sessions.types import ItemId, SessionId, TurnId


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A message with the words that were looked for, or a title: then there is no turn and item.

    `highlights` are where the words stand in `snippet`: first character, and the one behind.
    """

    session_id: SessionId
    turn_id: TurnId | None
    item_id: ItemId | None
    title: str | None
    role: str | None
    snippet: str
    highlights: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage:
    """One page of a search's results, newest first."""

    data: tuple[SearchHit, ...]
    has_more: bool
