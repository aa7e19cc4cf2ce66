"""The search: words found in an owner's sessions, with an index and without one."""

from dataclasses import replace

import pytest

from sessions.database import Database
from sessions.errors import InvalidInputError
from sessions.search import words_of
from sessions.search_index import SearchKind
from sessions.store import Store
from sessions.types import SessionChange
from tests.support.chat import ANN, BOB, Chat
from tests.support.fake_engine import FakeReply
from tests.support.postgres import DATABASES, SQLITE
from tests.unit.sessions.test_store import make_session


@pytest.fixture(params=[*DATABASES, "scanned"])
def search_kind(request):
    return request.param


@pytest.fixture
def database_kind(search_kind):
    return SQLITE if search_kind == "scanned" else search_kind


@pytest.fixture
async def database(search_kind, database_url):
    database = Database(database_url, is_indexed=search_kind != "scanned")
    await database.migrate()
    yield database
    await database.close()


async def found(manager, query: str, owner=ANN, **options) -> list[str]:
    page = await manager.catalog.search(owner, query, **options)
    return [hit.item_id or hit.session_id for hit in page.data]


async def say(chat: Chat, engine, asked: str, reply: str):
    engine.replies.append(FakeReply(pieces=(reply,)))
    return await chat.say(asked)


async def test_questions_replies_and_titles_are_found_newest_first(manager, engine):
    chat = await Chat.open(manager, title="Norway in May")
    turn = await say(chat, engine, "How far is norway?", "NORWAY is near.")

    ids = await found(manager, "Norway")

    assert ids == [turn.reply_item_id, turn.input_items[0].id, chat.id]


async def test_a_hit_says_where_it_is_and_marks_the_words(manager, engine):
    chat = await Chat.open(manager, title="Trip")
    turn = await say(chat, engine, "the deep fjords of Norway", "Yes.")

    hit = (await manager.catalog.search(ANN, "fjords")).data[0]

    assert (hit.session_id, hit.turn_id, hit.title, hit.role) == (chat.id, turn.id, "Trip", "user")
    assert "deep fjords of" in hit.snippet
    assert [hit.snippet[a:b] for a, b in hit.highlights] == ["fjords"]


async def test_all_words_must_be_there_and_the_last_may_be_unfinished(manager, engine):
    chat = await Chat.open(manager)
    turn = await say(chat, engine, "a long walk home", "Good.")

    assert await found(manager, "walk lo") == [turn.input_items[0].id]
    assert await found(manager, "walk run") == []


async def test_neither_accents_nor_case_matter(manager, engine):
    chat = await Chat.open(manager, title="Übermut in Ålesund")
    turn = await say(chat, engine, "Crème Bru\u0302le\u0301e à la carte", "Oui.")

    for query in ("creme brulee", "CRÈME", "crème brûl", "bru\u0302lee A"):
        assert await found(manager, query) == [turn.input_items[0].id]
    assert await found(manager, "ubermut ALES") == [chat.id]
    (hit,) = (await manager.catalog.search(ANN, "brulee")).data
    assert [hit.snippet[a:b] for a, b in hit.highlights] == ["Brûlée"]


@pytest.mark.parametrize(
    "query",
    [
        '"',
        '""" OR "',
        "'; DROP TABLE sessions; --",
        "NEAR(a b, 2)",
        "text: x",
        "a AND NOT b",
        "*",
        "^hello",
        "{text}: hello",
        "hello OR",
        "-hello",
        "(((",
        "%",
        "_",
        "\\",
        "\x01\x02",
        "😀",
        "C++ ++",
    ],
)
async def test_signs_in_a_query_are_neither_operators_nor_errors(manager, engine, query):
    chat = await Chat.open(manager)
    await say(chat, engine, "nothing like it", "No.")

    assert await found(manager, query) == []
    assert len((await manager.list(ANN)).data) == 1


async def test_operators_are_words(manager, engine):
    chat = await Chat.open(manager)
    turn = await say(chat, engine, 'he said "hello" OR not', "No.")

    assert await found(manager, '"hello" OR') == [turn.input_items[0].id]


async def test_what_is_deleted_or_somebody_elses_is_not_found(manager, engine):
    mine, other = await Chat.open(manager), await Chat.open(manager, BOB)
    await say(mine, engine, "apples", "Good.")
    theirs = await say(other, engine, "apples", "Good.")

    assert await found(manager, "apples", BOB) == [theirs.input_items[0].id]
    await manager.delete(ANN, mine.id)
    assert await found(manager, "apples") == []


async def test_a_new_title_is_found_and_the_old_one_no_more(manager):
    chat = await Chat.open(manager, title="apples")
    change = SessionChange(named=frozenset({"title"}), title="pears")

    await manager.catalog.update(ANN, chat.id, change)

    assert await found(manager, "apples") == []
    assert await found(manager, "pears") == [chat.id]


async def test_pages_of_hits_add_up(manager, engine):
    chat = await Chat.open(manager, title="apples")
    for number in range(3):
        await say(chat, engine, f"apples {number}", "apples")
    whole = await found(manager, "apples")

    read, after = [], None
    while ids := await found(manager, "apples", limit=3, after=after):
        read += ids
        after = ids[-1]

    assert read == whole
    assert len(whole) == 7


async def test_an_unknown_place_to_go_on_from_is_refused(manager):
    chat = await Chat.open(manager, BOB, title="apples")

    for after in ("msg_none", chat.id):
        with pytest.raises(InvalidInputError):
            await manager.catalog.search(ANN, "apples", after=after)
    with pytest.raises(InvalidInputError):
        await manager.catalog.search(ANN, "x" * 1001)
    with pytest.raises(InvalidInputError):
        await manager.catalog.search(ANN, "x\0")


def test_signs_alone_are_no_words():
    assert words_of(' " ++ a-b ( 7 ') == ["a-b", "7"]


async def test_an_index_that_was_left_behind_is_made_again(tmp_path, clock):
    url = f"sqlite:///{tmp_path / 'again.db'}"
    session_id = None
    for is_indexed, kind in (
        (True, SearchKind.FTS5),
        (False, SearchKind.SCAN),
        (True, SearchKind.FTS5),
    ):
        database = Database(url, is_indexed=is_indexed)
        await database.migrate()
        assert database.search_kind is kind
        store = Store(database)
        if not is_indexed:
            session_id = await _add_titled(store, clock)
        elif session_id is not None:
            page = await store.search(ANN, ["apples"], limit=5, after=None)
            assert [hit.session_id for hit in page.data] == [session_id]
        await database.close()


async def _add_titled(store, clock):
    session = make_session()
    await store.add_session(replace(session, title="apples"), clock_at=clock())
    return session.id


async def test_a_text_of_many_words_is_kept_and_found_by_its_first(store, clock):
    long = " ".join(f"word{number}" for number in range(200_000))
    session = replace(make_session(), title=long)

    await store.add_session(session, clock_at=clock())

    page = await store.search(ANN, ["word77"], limit=5, after=None)
    assert [hit.session_id for hit in page.data] == [session.id]
    assert len(page.data[0].snippet) < 1000
