"""A session manager, completions and an engine in memory, with the surfaces of the real ones.

A turn runs until the test ends it; `say` makes its deltas.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from model.messages import (
    BlockView,
    EngineInfo,
    EngineStats,
    Histogram,
    TableView,
    TierName,
)
from sessions.errors import (
    DrainingError,
    SessionBusyError,
    SessionNotFoundError,
    TurnNotFoundError,
)
from sessions.pages import Page
from sessions.types import (
    Item,
    ItemId,
    ItemKind,
    ReplyDelta,
    ReplyItemAdded,
    ReplyItemDone,
    ReplyPartAdded,
    ReplyPartDone,
    ReplyTextDone,
    Session,
    SessionId,
    Timing,
    Turn,
    TurnCreated,
    TurnEnded,
    TurnError,
    TurnEvent,
    TurnId,
    TurnInProgress,
    TurnMetrics,
    TurnRequest,
    TurnStatus,
    Usage,
)
from tests.support.fake_catalog import FakeCatalog, FakeEphemeral
from tests.support.fake_engine import INFO
from tests.support.fake_presence import CLAIM, DISK, NOW, FakePresence

TABLE = TableView(
    turn_id="resp_1",
    is_running=False,
    num_tokens=17,
    num_computed_tokens=16,
    idle_s=1.5,
    num_bytes=4096,
    blocks=(
        BlockView(block_id=3, num_tokens=16, tier=TierName.DEVICE, num_holders=2, block_hash="ab"),
    ),
)


class Feed:
    """What happened in a turn so far."""

    def __init__(self) -> None:
        self.events: list[TurnEvent] = []
        self.num_readers = 0
        self.unread = asyncio.Event()  # the last reader has left
        self._changed = asyncio.Event()

    def append(self, event: TurnEvent) -> None:
        self.events.append(event)
        self._changed.set()
        self._changed = asyncio.Event()

    async def read(self, after: int) -> AsyncIterator[tuple[int, TurnEvent]]:
        self.num_readers += 1
        self.unread.clear()
        try:
            cursor = after + 1
            while True:
                changed = self._changed
                while cursor < len(self.events):
                    yield cursor, self.events[cursor]
                    cursor += 1
                if self.events and isinstance(self.events[-1], TurnEnded):
                    return
                await changed.wait()
        finally:
            self.num_readers -= 1
            if not self.num_readers:
                self.unread.set()


class FakeKeyed:
    """Knows a session by its key, whatever was asked for."""

    def __init__(self) -> None:
        self._opened: dict[tuple[str, str], Session] = {}

    async def opened(self, owner, key, _asked, make) -> Session:
        if (owner, key) not in self._opened:
            self._opened[owner, key] = await make(None)
        return self._opened[owner, key]


class FakeManager:
    """Sessions and turns in dictionaries."""

    def __init__(self) -> None:
        self.sessions: dict[SessionId, Session] = {}
        self.turns_by_id: dict[TurnId, Turn] = {}
        self.feeds: dict[TurnId, Feed] = {}
        self.requests: list[TurnRequest] = []
        self.raises: Exception | None = None
        self.submitted = asyncio.Event()
        self.auto_reply: str | None = None
        self.is_draining = False
        self.catalog = FakeCatalog()
        self.ephemeral = FakeEphemeral()
        self.keyed = FakeKeyed()
        self.presence = FakePresence()
        self._ids = itertools.count(1)

    def _check(self) -> None:
        if self.raises is not None:
            exc, self.raises = self.raises, None
            raise exc

    async def create(self, owner, *, title=None, instructions=None, **options) -> Session:
        self._check()
        options["sampling"] = options.get("sampling") or {}
        session = Session(
            id=options.pop("id", None) or SessionId(f"conv_{next(self._ids)}"),
            owner=owner,
            title=title,
            instructions=instructions,
            model="tiny",
            fingerprint="f",
            created_at=NOW,
            updated_at=NOW,
            **options,
        )
        self.sessions[session.id] = session
        return session

    async def get(self, owner, session_id) -> Session:
        self._check()
        if session_id not in self.sessions:
            raise SessionNotFoundError(f"no session {session_id}")
        return self.sessions[session_id]

    async def list(
        self, owner, *, limit=20, after=None, is_descending=True, listed=True, **_
    ) -> Page:
        self._check()
        data = [s for s in self.sessions.values() if s.is_listed is listed]
        if is_descending:
            data.reverse()
        if after is not None:
            data = data[[s.id for s in data].index(after) + 1 :]
        return Page(data=tuple(data[:limit]), has_more=len(data) > limit)

    async def delete(self, owner, session_id) -> None:
        await self.get(owner, session_id)
        del self.sessions[session_id]

    async def turns(self, owner, session_id, *, whole_tree=False) -> tuple[Turn, ...]:
        await self.get(owner, session_id)
        return tuple(t for t in self.turns_by_id.values() if t.session_id == session_id)

    async def turn(self, owner, turn_id) -> Turn:
        self._check()
        if turn_id not in self.turns_by_id:
            raise TurnNotFoundError(f"no turn {turn_id}")
        return self.turns_by_id[turn_id]

    async def submit(self, owner, session_id, request: TurnRequest) -> Turn:
        session = await self.get(owner, session_id)
        if self.is_draining:
            raise DrainingError("the server is stopping")
        for turn in self.turns_by_id.values():
            if turn.session_id != session_id:
                continue
            if turn.client_turn_id is not None and turn.client_turn_id == request.client_turn_id:
                return turn
            if turn.status.is_active:
                raise SessionBusyError("the session has an active turn")
        self.requests.append(request)
        turn = self._make_turn(session, request)
        self._begin(turn)
        return turn

    def _make_turn(self, session: Session, request: TurnRequest) -> Turn:
        number = next(self._ids)
        turn_id = TurnId(f"resp_{number}")
        items = tuple(
            Item(
                id=ItemId(f"msg_{number}_{index}"),
                session_id=session.id,
                turn_id=turn_id,
                kind=ItemKind.MESSAGE,
                role=message.role,
                text=message.text,
                status="completed",
                created_at=NOW,
            )
            for index, message in enumerate(request.input)
        )
        return Turn(
            id=turn_id,
            session_id=session.id,
            parent_id=request.parent or session.head_turn_id,
            client_turn_id=request.client_turn_id,
            status=TurnStatus.RUNNING,
            params=request.params,
            model="tiny",
            input_items=items,
            reply_item_id=ItemId(f"msg_{number}_reply"),
            reply_text="",
            delta_lengths=(),
            metadata=request.metadata,
            created_at=NOW,
        )

    def _begin(self, turn: Turn) -> None:
        self.turns_by_id[turn.id] = turn
        feed = self.feeds[turn.id] = Feed()
        for event in (
            TurnCreated(turn),
            TurnInProgress(turn),
            ReplyItemAdded(turn.reply_item_id),
            ReplyPartAdded(turn.reply_item_id),
        ):
            feed.append(event)
        self.submitted.set()
        if self.auto_reply is not None:
            for word in self.auto_reply.split(" "):
                self.say(turn.id, word)
            self.end(turn.id)

    def say(self, turn_id: TurnId, text: str) -> None:
        turn = self.turns_by_id[turn_id]
        lengths = (*turn.delta_lengths, len(text))
        turn = replace(turn, reply_text=turn.reply_text + text, delta_lengths=lengths)
        self.turns_by_id[turn_id] = turn
        self.feeds[turn_id].append(ReplyDelta(turn.reply_item_id, text))

    def end(self, turn_id: TurnId, status: TurnStatus = TurnStatus.COMPLETED) -> Turn:
        turn = self.turns_by_id[turn_id]
        usage = Usage(
            input_tokens=120,
            cached_tokens=112,
            cache_write_tokens=8,
            output_tokens=len(turn.delta_lengths),
            num_rows_computed=8 + len(turn.delta_lengths),
            claim=CLAIM,
        )
        timing = Timing(queue_s=0.001, first_token_s=0.084, total_s=0.9, tokens_per_s=61.2)
        turn = replace(turn, status=status, usage=usage, timing=timing, finished_at=NOW)
        feed, item, text = self.feeds[turn_id], turn.reply_item_id, turn.reply_text
        if status is TurnStatus.FAILED:
            error = TurnError(code="engine_died", message="the engine died", retryable=True)
            turn = replace(turn, error=error, usage=None, timing=None)
        else:
            item_status = "completed" if status is TurnStatus.COMPLETED else "incomplete"
            feed.append(ReplyTextDone(item, text))
            feed.append(ReplyPartDone(item, text))
            feed.append(ReplyItemDone(item, text, item_status))
            feed.append(TurnMetrics(turn.id, usage, timing))
        self.turns_by_id[turn_id] = turn
        feed.append(TurnEnded(turn))
        return turn

    async def regenerate(self, owner, turn_id, *, params, client_turn_id=None) -> Turn:
        turn = await self.turn(owner, turn_id)
        request = TurnRequest(input=(), params=params, client_turn_id=client_turn_id)
        self.requests.append(request)
        sibling = self._make_turn(self.sessions[turn.session_id], request)
        sibling = replace(sibling, parent_id=turn.parent_id, input_items=turn.input_items)
        self._begin(sibling)
        return sibling

    async def cancel(self, owner, turn_id) -> Turn:
        turn = await self.turn(owner, turn_id)
        return self.end(turn_id, TurnStatus.CANCELLED) if turn.status.is_active else turn

    async def fork(self, owner, session_id, *, at=None, title=None, **options) -> Session:
        origin = await self.get(owner, session_id)
        session = await self.create(owner, title=title, **options)
        session = replace(session, forked_from=at or origin.head_turn_id)
        self.sessions[session.id] = session
        return session

    def read(self, owner, turn_id, *, after=-1) -> AsyncIterator[tuple[int, TurnEvent]]:
        if turn_id not in self.feeds:
            raise TurnNotFoundError(f"no turn {turn_id}")
        return self.feeds[turn_id].read(after)

    async def tables(self, owner, session_id) -> tuple[TableView, ...]:
        await self.get(owner, session_id)
        return (TABLE,)

    async def drain(self, timeout_s: float) -> None:
        self.is_draining = True

    @property
    def num_active(self) -> int:
        return sum(turn.status.is_active for turn in self.turns_by_id.values())


_TIMES = Histogram(bounds=(0.1, 1.0, float("inf")), counts=(1, 2, 3), total=4.5)


@dataclass
class FakeEngine:
    """An engine as handlers see it."""

    state: str = "ready"
    raises: Exception | None = None

    @property
    def info(self) -> EngineInfo:
        if self.raises is not None:
            raise self.raises
        return replace(
            INFO,
            model_id="org/tiny",
            fingerprint="0123456789abcdef",
            cache_bytes=2,
            block_bytes=128,
            max_context_tokens=2048,
            vocab_size=99,
        )

    async def stats(self) -> EngineStats:
        if self.raises is not None:
            raise self.raises
        return EngineStats(
            num_blocks=64,
            blocks_running=1,
            blocks_parked=2,
            blocks_cached=3,
            blocks_empty=58,
            num_running=1,
            num_waiting=7,
            num_parked_tables=2,
            rows_computed_total=10,
            tokens_generated_total=5,
            tokens_by_source=(("device", 112), ("computed", 8)),
            misses_by_reason=(("evicted", 4),),
            finished_by_reason=(("stop", 2),),
            preemptions_total=0,
            evicted_blocks_total=6,
            books_failures_total=0,
            steps_total=20,
            first_token_s=_TIMES,
            inter_token_s=_TIMES,
            queue_s=_TIMES,
            restore_s=_TIMES,
            tiers=(DISK,),
        )

    async def verify(self) -> int:
        return 2

    async def collect(self) -> int:
        return 1
