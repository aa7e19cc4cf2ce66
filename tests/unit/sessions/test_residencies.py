"""Where sessions are, as lists show it: live, and as it was stored when nobody can say."""

import pytest

from model.messages import Residency, TierName
from sessions.errors import StoreUnavailableError
from sessions.residencies import Residencies
from tests.support.chat import ANN, Chat
from tests.support.postgres import DATABASES


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


def resident(name, tier=TierName.DEVICE, stored_in=(TierName.DISK,), num_tokens=16):
    return Residency(
        conversation_id=name,
        turn_id="resp_1",
        tier=tier,
        tail="ab",
        num_tokens=num_tokens,
        num_bytes=4096,
        used_at=1000.25,
        stored_in=stored_in,
    )


@pytest.fixture
def make(store, engine):
    return lambda runner="runner-1": Residencies(store=store, engine=engine, runner_id=runner)


async def test_the_engine_knows_best(manager, engine, make):
    chat = await Chat.open(manager)
    residencies = make()
    assert residencies.of(chat.session) is None
    engine.residents[chat.id] = resident(chat.id)

    await residencies.refresh()

    assert residencies.of(chat.session) == resident(chat.id)


async def test_what_was_on_the_disk_is_known_before_the_next_engine_is_up(manager, engine, make):
    on_disk, in_memory = await Chat.open(manager), await Chat.open(manager)
    engine.residents[on_disk.id] = resident(on_disk.id)
    engine.residents[in_memory.id] = resident(in_memory.id, stored_in=())
    revision = (await manager.get(ANN, on_disk.id)).revision
    await make().refresh()

    restarted = make()
    found = restarted.of(await manager.get(ANN, on_disk.id))

    assert (found.tier, found.num_tokens, found.used_at) == (TierName.DISK, 16, 1000)
    assert restarted.of(await manager.get(ANN, in_memory.id)) is None
    assert (await manager.get(ANN, on_disk.id)).revision == revision
    engine.becomes(fingerprint="another")
    assert restarted.of(await manager.get(ANN, on_disk.id)) is None


async def test_what_the_engine_has_no_more_is_taken_out_again(manager, engine, make):
    chat = await Chat.open(manager)
    engine.residents[chat.id] = resident(chat.id)
    await make().refresh()
    engine.residents.clear()

    await make().refresh()

    assert (await manager.get(ANN, chat.id)).manifest is None


async def test_another_servers_manifests_are_its_own(manager, engine, make):
    chat = await Chat.open(manager)
    engine.residents[chat.id] = resident(chat.id)
    await make("runner-2").refresh()
    engine.residents.clear()

    await make("runner-1").refresh()

    assert (await manager.get(ANN, chat.id)).manifest["runner"] == "runner-2"


async def test_nothing_is_written_while_nothing_changes(manager, engine, make, store, monkeypatch):
    chat = await Chat.open(manager)
    engine.residents[chat.id] = resident(chat.id)
    residencies = make()
    await residencies.refresh()

    async def fail(*_):
        raise StoreUnavailableError("written")

    monkeypatch.setattr(store, "write_manifests", fail)
    await residencies.refresh()
    engine.residents[chat.id] = resident(chat.id, num_tokens=32)

    with pytest.raises(StoreUnavailableError):
        await residencies.refresh()


async def test_a_deleted_sessions_manifest_goes_with_it(manager, engine, make, store):
    chat = await Chat.open(manager)
    await manager.delete(ANN, chat.id)
    engine.residents[chat.id] = resident(chat.id)

    await make().refresh()

    assert await store.manifests("runner-1") == {}


async def test_behind_a_turn_nobody_waits_for_the_engine_to_be_asked(manager, make):
    chat = await Chat.open(manager)
    residencies = make()
    await residencies.refresh()
    turn = await chat.say("one")

    residencies.assume(turn)
    found = residencies.of(chat.session)

    assert (found.tier, found.turn_id) == (TierName.DEVICE, turn.id)
    assert found.num_tokens == turn.usage.input_tokens + turn.usage.output_tokens - 1
