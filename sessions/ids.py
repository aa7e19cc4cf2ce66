"""New ids: a prefix that says of what, the time in milliseconds, and 80 random bits.

Ids made later sort later (to the millisecond), so that an index on them grows at its end.
"""

import secrets
from datetime import datetime

from sessions.api_keys import KeyId
from sessions.types import ItemId, ItemKind, SessionId, TurnId


def new_session_id(now: datetime) -> SessionId:
    """A fresh `conv_…`."""
    return SessionId(_new_id("conv", now))


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
