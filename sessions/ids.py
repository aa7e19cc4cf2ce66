"""New ids: a prefix that says of what, the time in milliseconds, and 80 random bits.

Ids made later sort later (to the millisecond), so that an index on them grows at its end.
"""

import hashlib
import secrets
from datetime import datetime

from sessions.api_keys import KeyId
from sessions.types import ItemId, ItemKind, OwnerId, SessionId, TurnId

_KEYED_CHARS, _ASKED_CHARS = 20, 12


def new_session_id(now: datetime) -> SessionId:
    """A fresh `conv_…`."""
    return SessionId(_new_id("conv", now))


def keyed_session_id(owner: OwnerId, key: str, asked: str) -> SessionId:
    """The `conv_…` of what is opened under a caller's key: 80 bits of the key, and 48 of `asked`,
    a digest of what was asked for."""
    named = hashlib.sha256(f"{owner}\0{key}".encode()).hexdigest()
    return SessionId(f"conv_{named[:_KEYED_CHARS]}{asked[:_ASKED_CHARS]}")


def under_the_same_key(session_id: SessionId) -> tuple[SessionId, SessionId]:
    """The first and the last id that the key of a `keyed_session_id` can stand in."""
    named = session_id[:-_ASKED_CHARS]
    return SessionId(named + "0" * _ASKED_CHARS), SessionId(named + "f" * _ASKED_CHARS)


def new_turn_id(now: datetime) -> TurnId:
    """A fresh `resp_…`."""
    return TurnId(_new_id("resp", now))


def new_item_id(now: datetime) -> ItemId:
    """A fresh `msg_…`."""
    return ItemId(_new_id("msg", now))


_PREFIXES = {
    ItemKind.FUNCTION_CALL: "fc",
    ItemKind.FUNCTION_CALL_OUTPUT: "fco",
    ItemKind.REASONING: "rs",
    ItemKind.COMPACTION: "cmp",
}


def new_id_of_kind(kind: ItemKind, now: datetime) -> ItemId:
    """A fresh id of an item: `msg_…`, `fc_…`, `rs_…`."""
    return ItemId(_new_id(_PREFIXES.get(kind, "msg"), now))


def new_branch_id(now: datetime) -> str:
    """A fresh `br_…`; never leaves the store."""
    return _new_id("br", now)


def new_key_id(now: datetime) -> KeyId:
    """A fresh `key_…`: what a key is listed and revoked by; no secret."""
    return KeyId(_new_id("key", now))


def _new_id(prefix: str, now: datetime) -> str:
    return f"{prefix}_{int(now.timestamp() * 1000):012x}{secrets.token_hex(10)}"
