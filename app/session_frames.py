"""What a websocket tells of a session that it watches: pure functions, as in `representation.py`.

`session` is the session as its REST route would show it now; None for one that is deleted.
"""

from app.response_object import Json, turn_status
from sessions.session_events import SessionEvent

_NAMES = {
    "is_pinned": "pinned",
    "is_listed": "listed",
    "is_auto_titled": "auto_title",
    "retain_s": "ttl_s",
}


def session_state(conversation: str, *, revision: int, resync: bool, session: Json | None) -> Json:
    """Build where a subscription stands: events follow from `revision` on."""
    return {
        "type": "splice:session.state",
        "conversation": conversation,
        "revision": revision,
        "resync": resync,
        "session": session,
    }


def session_changed(conversation: str, event: SessionEvent, session: Json | None) -> Json:
    """Build a change of a session; `session` only for the newest one."""
    return {
        "type": "splice:session.changed",
        "conversation": conversation,
        "revision": event.revision,
        "change": str(event.kind),
        "response_id": event.turn_id,
        "status": None if event.status is None else turn_status(event.status),
        "fields": [_NAMES.get(name, name) for name in event.fields],
        "session": session,
    }
