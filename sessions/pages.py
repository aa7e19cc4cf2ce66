"""Pages of sessions and of items: which ones are asked for, and what came of it. Frozen values."""

from dataclasses import dataclass
from typing import TypedDict

from sessions.types import Item, ItemId, Session, SessionId


class Wanted(TypedDict, total=False):
    """What a page's sessions have in common, as `SessionFilter` has it."""

    after: SessionId | None
    is_descending: bool
    pinned: bool | None
    pinned_first: bool
    listed: bool
    title_has: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions a page has, in order of last use; `after` is the last one of the page before.

    `pinned` None: both kinds. `title_has` None: any title.
    """

    limit: int
    after: SessionId | None = None
    is_descending: bool = True
    pinned: bool | None = None
    pinned_first: bool = False
    listed: bool = True
    title_has: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list of sessions, the most recently used first unless asked otherwise."""

    data: tuple[Session, ...]
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Which items a page has, by their place in the conversation; `after` is the last one of the
    page before."""

    limit: int
    after: ItemId | None = None
    is_descending: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPage:
    """One page of a conversation's items."""

    data: tuple[Item, ...] = ()
    has_more: bool = False
