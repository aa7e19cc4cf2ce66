"""Keys in the database, and the ring that a server holds."""

import pytest

from sessions.api_keys import ApiKey, Scope, digest_of, new_secret, owner_named
from sessions.errors import InvalidInputError, KeyNotFoundError, StoreUnavailableError
from sessions.ids import new_key_id
from sessions.key_ring import FRESH_S, KeyRing
from sessions.key_store import KeyStore
from tests.support.fake_keys import FakeKeys


@pytest.fixture
def keys(database):
    return KeyStore(database)


async def make(keys, clock, owner="ann", scopes=(Scope.CHAT,)):
    secret = new_secret()
    now = clock()
    key = ApiKey(
        id=new_key_id(now),
        owner=owner_named(owner),
        name="laptop",
        scopes=frozenset(scopes),
        created_at=now,
    )
    await keys.add(key, digest_of(secret))
    return key, secret


async def test_a_key_is_stored_with_its_hash_and_not_its_secret(keys, clock, tmp_path):
    key, secret = await make(keys, clock, scopes=(Scope.CHAT, Scope.ADMIN))

    assert await keys.keys() == (key,)
    assert dict(await keys.unrevoked()) == {digest_of(secret): key}
    raw = b"".join(path.read_bytes() for path in tmp_path.glob("splice.db*"))
    assert digest_of(secret) in raw
    assert secret.encode() not in raw


async def test_a_revoked_key_is_listed_and_no_longer_good_and_the_server_stays_closed(keys, clock):
    key, _ = await make(keys, clock)
    at = clock()

    revoked = await keys.revoke(key.id, at)
    again = await keys.revoke(key.id, clock())

    assert revoked.revoked_at == again.revoked_at == at
    assert await keys.keys() == (revoked,)
    assert not await keys.unrevoked()
    assert await keys.has_any()


async def test_an_unknown_key_cannot_be_revoked(keys, clock):
    with pytest.raises(KeyNotFoundError):
        await keys.revoke("key_none", clock())


async def test_a_fresh_database_has_no_keys(keys):
    assert not await keys.has_any()


async def test_the_last_use_is_noted(keys, clock):
    _, secret = await make(keys, clock)

    found = await KeyRing(keys, clock).find(secret)

    assert found is not None
    assert (await keys.keys())[0].last_used_at == found.last_used_at is not None


@pytest.mark.parametrize("name", ["", " ann", "-ann", "a/b", "a" * 129, "ann\n"])
def test_an_owners_name_is_plain(name):
    with pytest.raises(InvalidInputError):
        owner_named(name)


def test_no_two_secrets_are_alike_and_all_are_recognised():
    secrets = {new_secret() for _ in range(100)}

    assert len(secrets) == 100
    assert all(s.startswith("sk-splice-") and len(s) == 53 for s in secrets)


async def test_a_ring_without_keys_is_open():
    assert not await KeyRing(FakeKeys(), FakeKeys().clock).is_closed()


async def test_what_is_made_or_revoked_takes_effect_within_the_bound():
    keys = FakeKeys()
    ring = KeyRing(keys, keys.clock)
    assert not await ring.is_closed()

    secret = keys.add("ann")
    keys.clock.advance(FRESH_S)
    assert await ring.is_closed()
    found = await ring.find(secret)
    assert found is not None
    assert found.owner == "ann"

    keys.revoke(secret)
    keys.clock.advance(FRESH_S)
    assert await ring.find(secret) is None
    assert not await ring.holds(found.id)
    assert await ring.is_closed()


async def test_a_thousand_wrong_secrets_cost_one_query_and_no_memory():
    keys = FakeKeys()
    keys.clock = type(keys.clock)(tick_s=0)
    keys.add("ann")
    ring = KeyRing(keys, keys.clock)

    found = [await ring.find(f"sk-splice-{n}") for n in range(1000)]

    assert not any(found)
    assert keys.num_reads == 1


async def test_a_use_is_noted_once_a_minute():
    keys = FakeKeys()
    secret = keys.add("ann")
    ring = KeyRing(keys, keys.clock)

    for _ in range(5):
        await ring.find(secret)

    assert keys.num_notes == 1


async def test_an_expired_key_is_refused_though_it_is_in_memory():
    keys = FakeKeys()
    secret = keys.add("ann", expires_s=1)
    ring = KeyRing(keys, keys.clock)

    assert await ring.find(secret) is not None
    keys.clock.advance(1)
    assert await ring.find(secret) is None


async def test_a_clock_set_back_makes_the_ring_look_again():
    keys = FakeKeys()
    ring = KeyRing(keys, keys.clock)
    assert not await ring.is_closed()

    keys.add("ann")
    keys.clock.advance(-3600)

    assert await ring.is_closed()


async def test_nobody_gets_in_while_the_database_is_away():
    keys = FakeKeys()
    keys.raises = StoreUnavailableError("gone")

    with pytest.raises(StoreUnavailableError):
        await KeyRing(keys, keys.clock).is_closed()
