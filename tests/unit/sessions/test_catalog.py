"""The catalog: sessions changed and looked through by who owns them."""

from dataclasses import replace

import pytest

from sessions.errors import (
    InvalidInputError,
    ItemNotFoundError,
    RevisionConflictError,
    SessionNotFoundError,
    TurnNotFoundError,
)
from sessions.types import ReasoningPolicy, SessionChange
from tests.support import tiny_tokenizer as tiny
from tests.support.chat import ANN, BOB, Chat
from tests.support.fake_engine import FakeReply
from tests.support.postgres import DATABASES


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


def change(**values) -> SessionChange:
    return SessionChange(named=frozenset(values), **values)


async def titles(manager, **options) -> list[str]:
    return [s.title for s in (await manager.list(ANN, **options)).data]


async def test_what_a_change_names_is_changed_and_nothing_else(manager):
    chat = await Chat.open(manager, title="Old", metadata={"a": "b"})

    changed = await manager.catalog.update(
        ANN,
        chat.id,
        change(
            title="New", reasoning=ReasoningPolicy.KEEP, sampling={"temperature": 0}, is_pinned=True
        ),
    )

    expected = replace(
        chat.session,
        title="New",
        reasoning=ReasoningPolicy.KEEP,
        sampling={"temperature": 0},
        is_pinned=True,
        revision=2,
    )
    assert changed == expected
    assert await manager.get(ANN, chat.id) == expected


async def test_a_change_can_take_a_title_away(manager):
    chat = await Chat.open(manager, title="Old")

    await manager.catalog.update(ANN, chat.id, change(title=None))

    assert (await manager.get(ANN, chat.id)).title is None


async def test_of_two_who_read_the_same_revision_the_second_is_told(manager):
    chat = await Chat.open(manager)
    await manager.catalog.update(ANN, chat.id, change(title="first"), expected_revision=1)

    with pytest.raises(RevisionConflictError, match="revision 2, not 1"):
        await manager.catalog.update(ANN, chat.id, change(title="second"), expected_revision=1)

    assert (await manager.get(ANN, chat.id)).title == "first"


async def test_another_owners_and_a_deleted_session_are_not_changed(manager):
    chat = await Chat.open(manager)
    with pytest.raises(SessionNotFoundError):
        await manager.catalog.update(BOB, chat.id, change(title="mine"))
    await manager.delete(ANN, chat.id)
    with pytest.raises(SessionNotFoundError):
        await manager.catalog.update(ANN, chat.id, change(title="late"))


@pytest.mark.parametrize(
    "values", [{"title": "t" * 501}, {"title": "a\0"}, {"instructions": "\ud800"}]
)
async def test_what_cannot_be_stored_is_refused(manager, values):
    chat = await Chat.open(manager)

    with pytest.raises(InvalidInputError):
        await manager.catalog.update(ANN, chat.id, change(**values))


async def test_new_instructions_stand_in_the_next_prompt_and_are_then_continued(manager, engine):
    chat = await Chat.open(manager, instructions="Be brief.")
    await chat.say("one")

    await manager.catalog.update(ANN, chat.id, change(instructions="Be long."))
    await chat.say("two")
    await chat.say("three")

    tokenizer = tiny.make_tokenizer(None)
    texts = [tokenizer.decode(request.token_ids) for request in engine.requests]
    assert "Be brief." in texts[0]
    assert "Be long." in texts[1]
    assert "Be brief." not in texts[1]
    assert "one" in texts[1]
    second, third = (tuple(request.token_ids) for request in engine.requests[1:])
    assert third[: len(second)] == second
    assert engine.requests[1].diverged_at is not None
    assert engine.requests[2].diverged_at is None


async def test_a_regenerated_reply_goes_by_the_new_instructions(manager, engine):
    chat = await Chat.open(manager, instructions="Be brief.")
    turn = await chat.say("one")

    await manager.catalog.update(ANN, chat.id, change(instructions=None))
    await chat.regenerate(turn)

    decoded = tiny.make_tokenizer(None).decode(engine.requests[1].token_ids)
    assert "Be brief." not in decoded


async def test_a_fork_has_its_origins_settings_but_not_its_pin(manager):
    chat = await Chat.open(manager, sampling={"top_k": 3}, is_pinned=True)

    fork = await chat.fork()

    assert (fork.session.sampling, fork.session.is_pinned) == ({"top_k": 3}, False)


async def test_a_session_says_which_of_its_turns_run(manager, engine):
    chat, other = await Chat.open(manager), await Chat.open(manager)
    engine.replies.append(FakeReply(holds_after=1))
    turn = await chat.submit()

    assert (await manager.get(ANN, chat.id)).active == (turn.id,)
    assert [s.active for s in (await manager.list(ANN)).data] == [(turn.id,), ()]

    await engine.held(turn.id)
    engine.let_go()
    await chat.end(turn)
    assert (await manager.get(ANN, chat.id)).active == ()
    assert (await manager.get(ANN, other.id)).active == ()


async def test_lists_have_pinned_ones_only_none_of_them_or_them_first(manager):
    for number in range(6):
        await Chat.open(manager, title=str(number), is_pinned=number in (1, 4))

    assert await titles(manager, pinned=True) == ["4", "1"]
    assert await titles(manager, pinned=False) == ["5", "3", "2", "0"]
    assert await titles(manager, pinned_first=True) == ["4", "1", "5", "3", "2", "0"]
    assert await titles(manager, pinned_first=True, is_descending=False) == [
        "1",
        "4",
        "0",
        "2",
        "3",
        "5",
    ]


@pytest.mark.parametrize("is_descending", [False, True])
async def test_pages_with_pinned_ones_first_add_up_to_the_whole_list(manager, is_descending):
    for number in range(7):
        await Chat.open(manager, title=str(number), is_pinned=number in (0, 3, 6))
    whole = await titles(manager, pinned_first=True, is_descending=is_descending)

    after, read = None, []
    while True:
        page = await manager.list(
            ANN, limit=2, pinned_first=True, is_descending=is_descending, after=after
        )
        read += [s.title for s in page.data]
        after = page.data[-1].id
        if not page.has_more:
            break

    assert read == whole


async def test_titles_are_found_whatever_their_case_and_signs_stand_for_themselves(manager):
    for title in ("Trip to Norway", "100% sure", "under_score", None):
        await Chat.open(manager, title=title)

    assert await titles(manager, title_has="norway") == ["Trip to Norway"]
    assert await titles(manager, title_has="%") == ["100% sure"]
    assert await titles(manager, title_has="r_s") == ["under_score"]
    assert await titles(manager, title_has="'; DROP TABLE sessions; --") == []


async def test_a_page_of_too_much_or_a_text_too_long_is_refused(manager):
    with pytest.raises(InvalidInputError):
        await manager.list(ANN, limit=101)
    with pytest.raises(InvalidInputError):
        await manager.list(ANN, title_has="x" * 501)


async def test_an_id_that_nobody_can_have_is_not_found(manager):
    for made_up in ("conv_\0", "\0", "conv_\N{REPLACEMENT CHARACTER}"):
        with pytest.raises(SessionNotFoundError):
            await manager.get(ANN, made_up)
        with pytest.raises(TurnNotFoundError):
            await manager.turn(ANN, made_up)
        with pytest.raises(ItemNotFoundError):
            await manager.items.find(ANN, made_up)
