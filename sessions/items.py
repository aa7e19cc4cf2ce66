"""A conversation's items, one by one: put in without a reply, listed, found, taken out again."""

from collections.abc import Callable, Sequence
from datetime import datetime

from sessions.admission import Admission
from sessions.errors import ItemNotFoundError
from sessions.history import made
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
        self, owner: OwnerId, session_id: SessionId, messages: Sequence[InputMessage]
    ) -> Turn:
        """Put messages behind the head, as a turn without a reply.

        Raises SessionBusyError while the head runs.
        """
        return await self._admission.put(owner, session_id, tuple(messages))

    async def listed(self, owner: OwnerId, session_id: SessionId) -> tuple[Item, ...]:
        """What the head's branch says, oldest first; of a turn that still runs nothing."""
        session = await self._store.session(owner, session_id)
        if session.head_turn_id is None:
            return ()
        path = await self._store.path(session.head_turn_id)
        return tuple(
            item
            for turn in path
            if not turn.status.is_active
            for item in (*turn.input_items, *made(turn))
            if item.id not in turn.deleted_items
        )

    async def get(self, owner: OwnerId, session_id: SessionId, item_id: ItemId) -> Item:
        """An item of the head's branch; raises ItemNotFoundError."""
        for item in await self.listed(owner, session_id):
            if item.id == item_id:
                return item
        raise ItemNotFoundError(f"the conversation has no item {item_id!r}")

    async def find(self, owner: OwnerId, item_id: ItemId) -> Item:
        """An item, wherever it is; raises ItemNotFoundError."""
        return await self._store.item(owner, item_id)

    async def delete(self, owner: OwnerId, session_id: SessionId, item_id: ItemId) -> None:
        """Take an item out of the conversation: the next turn goes on without it.

        Raises ItemNotFoundError, also for one from before a fork.
        """
        await self._store.delete_item(owner, session_id, item_id, self._clock())
