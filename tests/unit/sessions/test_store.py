"""The store: what only the database can tell."""

from dataclasses import replace
from datetime import timedelta

import pytest

from sessions.errors import RevisionConflictError, SessionNotFoundError
from sessions.token_log import TokenSpan
from sessions.turn_writes import Checkpoint, Lease, NewTurn
from sessions.types import ItemId, OwnerId, Session, SessionId, TurnId, TurnStatus
from tests.support.postgres import DATABASES
from tests.support.turns import NOW, USAGE, make_item, make_turn


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


ANN = OwnerId("ann")
LATER = NOW + timedelta(seconds=60)


def make_session(name: str = "conv_1") -> Session:
    return Session(
        id=SessionId(name),
        owner=ANN,
        title=None,
        instructions=None,
        model="m",
        fingerprint="f",
        created_at=NOW,
        updated_at=NOW,
    )


def make_new_turn(
    name: str = "resp_1", *, parent: str | None = None, follows_head: bool = True, **overrides
) -> NewTurn:
    turn = make_turn(
        id=TurnId(name),
        parent_id=parent,
        status=TurnStatus.PENDING,
        input_items=(make_item(id=ItemId(f"msg_in_{name}"), turn_id=TurnId(name)),),
        reply_item_id=ItemId(f"msg_out_{name}"),
        reply_text="",
        delta_lengths=(),
        usage=None,
        timing=None,
        finished_at=None,
        **overrides,
    )
    span = TokenSpan(
        turn_id=turn.id,
        base_id=turn.parent_id,
        keep_tokens=0,
        num_prompt_tokens=2,
        ids=(1, 2),
        fingerprint="f",
    )
    lease = Lease(turn_id=turn.id, runner_id="runner-1", until=NOW + timedelta(seconds=30))
    return NewTurn(
        turn=turn,
        span=span,
        lease=lease,
        digest="d",
        input_turn_id=turn.id,
        follows_head=follows_head,
    )


def ended(new: NewTurn, **overrides):
    values = {"status": TurnStatus.COMPLETED, "reply_text": "Hi", "delta_lengths": (2,)}
    return replace(new.turn, **{**values, "finished_at": NOW, **overrides})


CHECKPOINT = Checkpoint(text="H", pieces=[1], ids=(1, 2, 3))


@pytest.fixture
async def session(store):
    await store.add_session(make_session(), clock_at=NOW)
    return make_session()


async def test_a_turn_comes_back_as_it_was_written(store, session):
    new = make_new_turn(metadata={"a": "b"}, client_turn_id="c")
    await store.add_turn(new)
    assert await store.turn(ANN, new.turn.id) == new.turn

    done = ended(new, usage=USAGE)
    assert await store.end_turn(new.lease, done, (1, 2, 3))

    assert await store.turn(ANN, new.turn.id) == done
    assert (await store.spans(new.turn.id))[-1].ids == (1, 2, 3)
    assert await store.submitted(session.id, "c") == (done, "d")


async def test_a_turn_that_follows_the_head_loses_to_who_was_first(store, session):
    await store.add_turn(make_new_turn())

    with pytest.raises(RevisionConflictError):
        await store.add_turn(make_new_turn("resp_2"))


async def test_a_clients_id_is_used_once_a_session(store, session):
    await store.add_turn(make_new_turn(client_turn_id="c"))

    with pytest.raises(RevisionConflictError):
        await store.add_turn(make_new_turn("resp_2", follows_head=False, client_turn_id="c"))


async def test_a_turn_for_a_session_deleted_meanwhile_is_refused(store, session):
    await store.delete_session(ANN, session.id, NOW)

    with pytest.raises(SessionNotFoundError):
        await store.add_turn(make_new_turn())


async def test_a_turn_ends_once(store, session):
    new = make_new_turn()
    await store.add_turn(new)
    await store.end_turn(new.lease, ended(new), (1, 2, 3))

    assert not await store.end_turn(new.lease, ended(new, reply_text="No"), (9,))
    assert not await store.checkpoint(new.lease, CHECKPOINT)

    assert (await store.turn(ANN, new.turn.id)).reply_text == "Hi"


@pytest.mark.parametrize("other", [{"runner_id": "runner-2"}, {"epoch": 2}])
async def test_only_the_lease_writes_a_turn(store, session, other):
    new = make_new_turn()
    await store.add_turn(new)
    stolen = replace(new.lease, **other)

    assert not await store.checkpoint(stolen, CHECKPOINT)
    assert not await store.end_turn(stolen, ended(new), (9,))

    assert (await store.turn(ANN, new.turn.id)).status is TurnStatus.PENDING
    assert (await store.spans(new.turn.id))[-1].ids == (1, 2)


async def test_an_abandoned_turn_keeps_its_last_checkpoint(store, session):
    new = make_new_turn()
    await store.add_turn(new)
    await store.checkpoint(new.lease, CHECKPOINT)

    assert await store.interrupt_abandoned("runner-1", NOW, spare=()) == (new.turn.id,)

    turn = await store.turn(ANN, new.turn.id)
    assert (turn.status, turn.reply_text) == (TurnStatus.INTERRUPTED, "H")
    assert (turn.delta_lengths, turn.finished_at) == ((1,), NOW)
    assert not await store.end_turn(new.lease, ended(new), (9,))


@pytest.mark.parametrize(
    ("runner", "now", "spare", "is_ended"),
    [
        ("runner-1", NOW, (), True),
        ("runner-1", NOW, ("resp_1",), False),
        ("runner-2", NOW, (), False),
        ("runner-2", LATER, (), True),
        (None, NOW, (), False),
        (None, LATER, (), True),
        (None, LATER, ("resp_1",), False),
    ],
)
async def test_a_turn_is_abandoned_by_its_dead_runner_or_its_lease(
    store, session, runner, now, spare, is_ended
):
    new = make_new_turn()
    await store.add_turn(new)

    found = await store.interrupt_abandoned(runner, now, spare=spare)

    assert bool(found) is is_ended


async def test_a_renewed_lease_is_not_over(store, session):
    new = make_new_turn()
    await store.add_turn(new)

    await store.renew("runner-1", [new.turn.id], LATER + timedelta(seconds=1))
    await store.renew("runner-2", [new.turn.id], NOW)

    assert await store.interrupt_abandoned(None, LATER, spare=()) == ()


async def test_a_checkpoint_renews_the_lease(store, session):
    new = make_new_turn()
    await store.add_turn(new)

    await store.checkpoint(replace(new.lease, until=LATER + timedelta(seconds=1)), CHECKPOINT)

    assert await store.interrupt_abandoned(None, LATER, spare=()) == ()


async def test_a_long_path_is_read_in_order(store, session):
    parent = None
    for number in range(60):
        new = make_new_turn(f"resp_{number}", parent=parent)
        await store.add_turn(new)
        await store.end_turn(new.lease, ended(new), (1, 2, 3))
        parent = new.turn.id

    path = await store.path(TurnId("resp_59"))
    spans = await store.spans(TurnId("resp_59"))

    assert [t.id for t in path] == [f"resp_{n}" for n in range(60)]
    assert [s.turn_id for s in spans] == [t.id for t in path]
    assert await store.is_ancestor(TurnId("resp_3"), of=TurnId("resp_59"))
    assert not await store.is_ancestor(TurnId("resp_59"), of=TurnId("resp_3"))
