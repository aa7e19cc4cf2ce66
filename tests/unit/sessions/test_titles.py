"""Titles are made while nobody else wants the model, and get in nobody's way."""

import asyncio
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import pytest

from model.errors import EngineDiedError
from sessions.manager import ManagerConfig, SessionManager
from sessions.session_events import ChangeKind
from sessions.titles import MAX_TOKENS, Titler
from sessions.types import SessionChange, TurnStatus
from tests.support.chat import ANN, Chat
from tests.support.fake_engine import FakeReply
from tests.support.postgres import DATABASES


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


@pytest.fixture
def begun(engine):
    """The ids of the titles' generations, as they begin."""
    ids = asyncio.Queue()

    def note(request) -> None:
        if request.request_id.startswith("title_"):
            ids.put_nowait(request.request_id)

    engine.on_start = note
    return ids


@pytest.fixture
def serving(store, engine, clock, renderer, monkeypatch):
    """A manager that makes titles; `wanted` is heard of each title that is settled."""
    settled = asyncio.Queue()
    give = Titler._next

    async def noted(self):
        await give(self)
        settled.put_nowait(len(self._num_failures))

    monkeypatch.setattr(Titler, "_next", noted)

    @asynccontextmanager
    async def start(*, is_on: bool = True):
        config = ManagerConfig(runner_id="runner-1", auto_titles=is_on)
        async with SessionManager(
            store=store, engine=engine, clock=clock, config=config
        ) as manager:
            manager._titler._retry_s = 0
            manager.use_renderer(renderer)
            yield manager, settled

    return start


def titles_asked(engine) -> list:
    return [r for r in engine.requests if r.request_id.startswith("title_")]


async def test_a_first_completed_turn_gets_its_session_a_title(serving, engine, store):
    async with serving() as (manager, settled):
        chat = await Chat.open(manager)
        engine.replies.extend([FakeReply(), FakeReply(pieces=('"Deep', ' Fjords."'))])
        turn = await chat.say("How deep are fjords?")
        before = await manager.get(ANN, chat.id)
        await settled.get()

        after = await manager.get(ANN, chat.id)

        assert after == replace(before, title="Deep Fjords", revision=before.revision + 1)
        async with aclosing(manager.catalog.watch(ANN, chat.id, after=before.revision)) as watching:
            (event,) = (await anext(watching)).events
        assert (event.kind, event.fields) == (ChangeKind.UPDATED, ("title",))
        found = (await manager.catalog.search(ANN, "deep fjo")).data
        assert [(hit.session_id, hit.item_id) for hit in found[:1]] == [(chat.id, None)]
        (asked,) = titles_asked(engine)
        assert (asked.conversation_id, asked.parent_turn_id, asked.owner) == (None, None, ANN)
        assert asked.params.max_output_tokens == MAX_TOKENS
        assert await manager.turns(ANN, chat.id) == (turn,)
        assert [t.turn_id for t in await manager.tables(ANN, chat.id)] == [turn.id]


async def test_a_first_reply_that_was_stopped_gets_its_session_a_title_too(serving, engine):
    async with serving() as (manager, settled):
        chat = await Chat.open(manager)
        engine.replies.extend([FakeReply(holds_after=1), FakeReply(pieces=("Deep Fjords",))])
        turn = await chat.submit("How deep are fjords?")
        await engine.held(turn.id)
        await manager.cancel(ANN, turn.id)
        await settled.get()

        assert (await chat.end(turn)).status is TurnStatus.CANCELLED
        assert (await manager.get(ANN, chat.id)).title == "Deep Fjords"


async def test_the_next_turn_claims_what_it_would_have_claimed_without_a_title(serving, engine):
    claims = []
    for is_on in (False, True):
        async with serving(is_on=is_on) as (manager, settled):
            chat = await Chat.open(manager)
            await chat.say("one")
            if is_on:
                await settled.get()
            claims.append((await chat.say("two")).usage)

    assert claims[0] == claims[1]


@pytest.mark.parametrize("reply", ["", "Sure, here is", "the the the the"])
async def test_rubbish_is_replaced_by_the_first_words(serving, engine, reply):
    async with serving() as (manager, settled):
        chat = await Chat.open(manager)
        engine.replies.extend([FakeReply(), FakeReply(pieces=(reply,) if reply else ())])
        await chat.say("How deep are fjords?")
        await settled.get()

        assert (await manager.get(ANN, chat.id)).title == "How deep are fjords?"


@pytest.mark.parametrize("options", [{"title": "Mine"}, {"is_auto_titled": False}])
async def test_a_session_with_a_title_or_that_wants_none_is_left_alone(serving, engine, options):
    async with serving() as (manager, settled):
        left, other = await Chat.open(manager, **options), await Chat.open(manager)
        await left.say("one")
        await other.say("two")
        await settled.get()

        assert (await manager.get(ANN, left.id)).title == options.get("title")
        assert len(titles_asked(engine)) == 1


async def test_titles_can_be_turned_off(serving, engine):
    async with serving(is_on=False) as (manager, _):
        chat = await Chat.open(manager)
        await chat.say("one")

        await manager.drain(0)
    assert titles_asked(engine) == []


@pytest.mark.parametrize(
    "change",
    [
        SessionChange(named=frozenset({"title"}), title="Mine"),
        SessionChange(named=frozenset({"is_auto_titled"}), is_auto_titled=False),
    ],
)
async def test_a_title_given_meanwhile_stays(serving, engine, begun, change):
    async with serving() as (manager, settled):
        chat = await Chat.open(manager)
        engine.replies.extend([FakeReply(), FakeReply(holds_after=1)])
        await chat.say("one")
        await _held(engine, begun)
        await manager.catalog.update(ANN, chat.id, change)
        engine.let_go()
        await settled.get()

        assert (await manager.get(ANN, chat.id)).title == change.title


async def test_a_turn_ends_a_title_at_once_and_it_is_made_behind_the_turn(serving, engine, begun):
    async with serving() as (manager, settled):
        chat, other = await Chat.open(manager), await Chat.open(manager, title="Other")
        engine.replies.extend([FakeReply(), FakeReply(holds_after=0)])
        await chat.say("one")
        interrupted = await _held(engine, begun)

        engine.replies.extend([FakeReply(), FakeReply(pieces=("Late",))])
        await other.say("two")

        assert await settled.get() == 1
        assert interrupted not in engine._flights
        assert await settled.get() == 0
        assert (await manager.get(ANN, chat.id)).title == "Late"
        order = [r.request_id.split("_")[0] for r in engine.requests]
        assert order == ["resp", "title", "resp", "title"]


async def test_no_title_is_begun_while_a_reply_is_in_the_making(serving, engine):
    async with serving() as (manager, settled):
        chat, other = await Chat.open(manager), await Chat.open(manager, title="Other")
        engine.replies.extend([FakeReply(holds_after=1), FakeReply()])
        running = await other.submit("long")
        await engine.held(running.id)
        await chat.say("one")
        assert titles_asked(engine) == []

        engine.let_go()
        await other.end(running)
        await settled.get()

        assert len(titles_asked(engine)) == 1


async def test_what_a_former_life_left_untitled_is_taken_up_again(serving, engine):
    async with serving(is_on=False) as (manager, _):
        chats = [await Chat.open(manager) for _ in range(3)]
        for number, chat in enumerate(chats[:2]):
            await chat.say(f"question {number}")
        await manager.delete(ANN, chats[1].id)
    engine.default = FakeReply(pieces=("Made",))
    async with serving() as (manager, settled):
        await settled.get()

        assert (await manager.get(ANN, chats[0].id)).title == "Made"
        assert (await manager.get(ANN, chats[2].id)).title is None
    assert len(titles_asked(engine)) == 1


async def test_an_engine_that_fails_is_tried_again_and_then_done_without(serving, engine):
    async with serving() as (manager, settled):
        chat = await Chat.open(manager)
        failing = FakeReply(error=EngineDiedError("gone"))
        engine.replies.extend([FakeReply(), failing, failing, failing])
        await chat.say("How deep?")
        for _ in range(4):
            await settled.get()

        assert (await manager.get(ANN, chat.id)).title == "How deep?"
        assert len(titles_asked(engine)) == 3


async def test_a_full_cache_is_not_disturbed(serving, engine):
    engine.becomes(num_blocks=2)
    async with serving() as (manager, settled):
        chat = await Chat.open(manager)
        await chat.say("How deep?")
        await settled.get()

        assert (await manager.get(ANN, chat.id)).title == "How deep?"
    assert titles_asked(engine) == []


async def _held(engine, begun) -> str:
    """Wait until a title's generation waits."""
    request_id = await begun.get()
    await engine.held(request_id)
    return request_id
