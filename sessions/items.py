"""A conversation's items, one by one: put in without a reply, listed, found, taken out again."""

from collections.abc import Callable, Sequence
from datetime import datetime

from sessions.admission import Admission
from sessions.catalog import check_limit
from sessions.errors import InvalidInputError, ItemNotFoundError
from sessions.pages import ItemFilter, ItemPage
from sessions.store import Store
from sessions.types import (
    InputMessage,
    Item,
    ItemId,
    OwnerId,
    SessionId,
    Turn,
)


class Items:
    """One owner's at a time; holds no state of its own."""

    def __init__(self, store: Store, admission: Admission, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._admission = admission
        self._clock = clock

    async def put(
        self,
        owner: OwnerId,
        session_id: SessionId,
        messages: Sequence[InputMessage],
        client_turn_id: str | None = None,
    ) -> Turn:
        """Put messages behind the head, as a turn without a reply; the same `client_turn_id` with
        the same messages gives the turn that there is.

        Raises SessionBusyError while the head runs.
        """
        return await self._admission.put(owner, session_id, tuple(messages), client_turn_id)

    async def page(self, owner: OwnerId, session_id: SessionId, wanted: ItemFilter) -> ItemPage:
        """What the head's branch says, one page; of a turn that still runs nothing."""
        check_limit(wanted.limit)
        session = await self._store.session(owner, session_id)
        if session.head_turn_id is None:
            if wanted.after is not None:
                raise InvalidInputError("no item of the list has that id", param="after")
            return ItemPage()
        return await self._store.items(session.head_turn_id, wanted)

    async def get(self, owner: OwnerId, session_id: SessionId, item_id: ItemId) -> Item:
        """An item of the head's branch; raises ItemNotFoundError."""
        session = await self._store.session(owner, session_id)
        if session.head_turn_id is None:
            raise ItemNotFoundError(f"no item has the id {item_id!r}")
        return await self._store.item_along(session.head_turn_id, item_id)

    async def find(self, owner: OwnerId, item_id: ItemId) -> Item:
        """An item, wherever it is; raises ItemNotFoundError."""
        return await self._store.item(owner, item_id)

    async def delete(self, owner: OwnerId, session_id: SessionId, item_id: ItemId) -> None:
        """Take an item out of the conversation: the next turn goes on without it.

        Raises ItemNotFoundError, also for one from before a fork.
        """
        await self._store.delete_item(owner, session_id, item_id, self._clock())
