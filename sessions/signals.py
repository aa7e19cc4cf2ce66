"""Who waits for news of a session hears of a commit made here; what others commit isn't heard.

Memory: one event for each session that somebody waits for.
"""

import asyncio
import weakref
from collections.abc import Iterable


class ChangeSignals:
    """One a database; on one event loop."""

    def __init__(self) -> None:
        self._event_by_session: weakref.WeakValueDictionary[str, asyncio.Event] = (
            weakref.WeakValueDictionary()
        )

    def next(self, session_id: str) -> asyncio.Event:
        """What is set at the next change. Take it before looking, so that none is missed."""
        event = self._event_by_session.get(session_id)
        if event is None:
            event = self._event_by_session[session_id] = asyncio.Event()
        return event

    def fire(self, session_ids: Iterable[str]) -> None:
        """Wake all who wait for one of them; who looks from now on waits for the next change."""
        for session_id in session_ids:
            event = self._event_by_session.pop(session_id, None)
            if event is not None:
                event.set()
