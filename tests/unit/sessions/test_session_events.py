"""Who watches a session misses nothing, hears nothing twice, and learns when it can't be so."""

import asyncio
import gc

import pytest

from sessions.errors import SessionNotFoundError
from sessions.session_events import ChangeKind, SessionEvent, SessionNews, watch
from sessions.signals import ChangeSignals
from sessions.types import SessionChange, TurnStatus
from tests.support.chat import ANN, Chat
from tests.support.postgres import DATABASES


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


def titled(text):
    return SessionChange(named=frozenset({"title"}), title=text)


async def test_each_revision_has_its_event(manager, store):
    chat = await Chat.open(manager)
    turn = await chat.say()
    await manager.catalog.update(ANN, chat.id, titled("a title"))
    await manager.move_head(ANN, chat.id, None)
    await manager.move_head(ANN, chat.id, None)  # it is there already
    await manager.delete(ANN, chat.id)
    deleted = await store.news(chat.id, chat.session.revision)
    await manager.catalog.restore(ANN, chat.id)
    news = await store.news(chat.id, chat.session.revision)

    assert deleted.session is None
    assert news.session == await manager.get(ANN, chat.id)
    first = chat.session.revision + 1
    kinds = [
        {"kind": ChangeKind.TURN_STARTED, "turn_id": turn.id},
        {"kind": ChangeKind.TURN_ENDED, "turn_id": turn.id, "status": TurnStatus.COMPLETED},
        {"kind": ChangeKind.UPDATED, "fields": ("title",)},
        {"kind": ChangeKind.HEAD_MOVED},
        {"kind": ChangeKind.DELETED},
        {"kind": ChangeKind.RESTORED},
    ]
    assert news.events == tuple(
        SessionEvent(revision=first + number, **fields) for number, fields in enumerate(kinds)
    )
    assert news.revision == news.events[-1].revision


async def test_only_the_owner_may_watch(manager):
    chat = await Chat.open(manager)

    with pytest.raises(SessionNotFoundError):
        await anext(manager.catalog.watch("bob", chat.id))


async def test_a_purge_ends_the_watching(manager, store, clock):
    chat = await Chat.open(manager)
    watching = manager.catalog.watch(ANN, chat.id)
    await anext(watching)
    await manager.delete(ANN, chat.id)
    assert (await anext(watching)).session is None
    rest = asyncio.ensure_future(anext(watching, None))
    clock.advance(10)
    assert await store.purge(chat.id, clock())

    assert await asyncio.wait_for(rest, 5) is None


class Elsewhere:
    """A store that another server writes to: nobody is told."""

    poll_s = 0.001

    def __init__(self):
        self.signals = ChangeSignals()
        self.revision = 1

    async def session(self, owner, session_id):
        return None

    async def news(self, session_id, after):
        return SessionNews(revision=self.revision, session=None)

    def next_change(self, session_id):
        return self.signals.next(session_id)


async def test_what_another_server_writes_is_found_by_looking():
    source = Elsewhere()
    watching = watch(source, ANN, "conv_1", after=None)
    await anext(watching)
    found = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0)
    source.revision = 2

    assert (await asyncio.wait_for(found, 5)).revision == 2


async def test_a_change_wakes_those_who_wait_for_it_and_no_others():
    signals = ChangeSignals()
    one, same, other = signals.next("a"), signals.next("a"), signals.next("b")
    signals.fire(["a", "nobody waits for this"])

    assert one is same
    assert one.is_set()
    assert not other.is_set()
    assert not signals.next("a").is_set()


async def test_nothing_is_remembered_of_those_who_have_left():
    signals = ChangeSignals()
    for number in range(100):
        signals.next(f"{number}")
    gc.collect()

    assert len(signals._event_by_session) == 0
