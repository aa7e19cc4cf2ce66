"""Sessions that a socket watches: each with a cursor of its own, the session's revision.

A session is watched once a socket; watching it again moves the cursor. Bounded: at most
`max_subscriptions` a socket, a task each, which ends with the socket.
"""

import asyncio

from aiohttp import web

from app.errors import RequestError, boundary
from app.keys import CONFIG, MANAGER, OWNER, REQUEST_ID
from app.outbox import Outbox
from app.peer import closing
from app.protocol import SubscribeFrame
from app.rest import shown
from app.session_frames import session_changed, session_state
from sessions.session_events import SessionNews
from sessions.types import SessionId


class Subscriptions:
    """Those of one socket; its tasks are the socket's."""

    def __init__(self, request: web.Request, outbox: Outbox, tasks: asyncio.TaskGroup) -> None:
        self._request = request
        self._manager = request.app[MANAGER]
        self._owner = request[OWNER]
        self._request_id = request[REQUEST_ID]
        self._max = request.app[CONFIG].max_subscriptions
        self._outbox = outbox
        self._tasks = tasks
        self._watching: dict[str, asyncio.Task[None]] = {}

    def begin(self, frame: SubscribeFrame) -> None:
        """Watch a session from the frame's cursor on."""
        if len(self._watching) >= self._max and frame.conversation not in self._watching:
            raise RequestError(
                "too_many_subscriptions",
                f"at most {self._max} sessions are watched on one socket",
            )
        self.end(frame.conversation)
        self._watching[frame.conversation] = self._tasks.create_task(self._watch(frame))

    def end(self, conversation: str) -> None:
        """Watch a session no longer; one that isn't watched is left so."""
        task = self._watching.pop(conversation, None)
        if task is not None:
            task.cancel()

    def end_all(self) -> None:
        """Watch nothing any more."""
        for conversation in tuple(self._watching):
            self.end(conversation)

    async def _watch(self, frame: SubscribeFrame) -> None:
        """Pass on what happens; never raises, for that would end its neighbours."""
        place = SessionId(frame.conversation)
        task = asyncio.current_task()
        try:
            with boundary(self._request_id) as caught:
                is_first = True
                news_of = self._manager.catalog.watch(self._owner, place, after=frame.after)
                async with closing(news_of) as watched:
                    async for news in watched:
                        await self._pass_on(frame, news, is_first=is_first)
                        is_first = False
            if caught.error is not None:
                await self._outbox.put(
                    caught.error.frame(event_id=frame.event_id, conversation=place)
                )
        finally:
            if self._watching.get(frame.conversation) is task:
                del self._watching[frame.conversation]

    async def _pass_on(self, frame: SubscribeFrame, news: SessionNews, *, is_first: bool) -> None:
        session = None if news.session is None else shown(self._request, news.session)
        if is_first or not news.is_whole:
            cursor = frame.after if is_first and news.is_whole else None
            state = session_state(
                frame.conversation,
                revision=news.revision if cursor is None else cursor,
                resync=not news.is_whole,
                session=session,
            )
            await self._outbox.put({**state, "event_id": frame.event_id})
        for event in news.events:
            newest = session if event is news.events[-1] else None
            await self._outbox.put(session_changed(frame.conversation, event, newest))
