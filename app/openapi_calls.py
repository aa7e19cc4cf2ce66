"""What `/openapi.json` knows of the calls beyond their routes."""

from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is known of a call beyond its route: component names, the status, queries, whether it
    takes an `Idempotency-Key`; of a websocket what frames the client and the server send."""

    body: str | None = None
    answer: str | None = None
    status: int = 200
    stream: str | None = None
    query: tuple[tuple[str, Json], ...] = ()
    is_keyed: bool = False
    frames: tuple[str, str] | None = None


_PAGE: Final = (
    ("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
    ("after", {"type": "string"}),
    ("order", {"enum": ["asc", "desc"], "default": "desc"}),
)
_FILTERS: Final = (
    ("q", {"type": "string"}),
    ("pinned", {"type": "boolean"}),
    ("pinned_first", {"type": "boolean", "default": False}),
    ("listed", {"type": "boolean", "default": True}),
)
_CURSOR: Final = (
    ("stream", {"type": "boolean", "default": False}),
    ("starting_after", {"type": "integer", "minimum": -1, "default": -1}),
)
_INCLUDE: Final = (("include[]", {"type": "array", "items": {"type": "string"}}),)
_RESPONSES: Final = "/v1/responses"
_RESPONSE: Final = _RESPONSES + "/{response}"
_CONVERSATION: Final = "/v1/conversations/{conversation}"
_ITEMS: Final = _CONVERSATION + "/items"
_SESSION: Final = "/v1/sessions/{session}"
_TURN: Final = _SESSION + "/turns/{turn}"

CALLS: Final[dict[tuple[str, str], Call]] = {
    ("POST", "/v1/sessions"): Call(body="SessionBody", answer="Session", status=201, is_keyed=True),
    ("GET", "/v1/sessions"): Call(answer="SessionList", query=(*_PAGE, *_FILTERS)),
    ("GET", _SESSION): Call(answer="Session"),
    ("PATCH", _SESSION): Call(body="SessionPatch", answer="Session"),
    ("DELETE", _SESSION): Call(answer="Deleted"),
    ("POST", _SESSION + "/restore"): Call(body="EmptyBody", answer="Session"),
    ("POST", _SESSION + "/head"): Call(body="HeadBody", answer="Session"),
    ("POST", "/v1/sessions/import"): Call(
        body="SessionFile", answer="Session", status=201, is_keyed=True
    ),
    ("GET", _SESSION + "/export"): Call(
        query=(("format", {"enum": ["json", "markdown"], "default": "json"}),)
    ),
    ("GET", "/v1/search"): Call(
        answer="HitList", query=(("q", {"type": "string", "minLength": 1}), *_PAGE[:2])
    ),
    ("POST", _SESSION + "/fork"): Call(
        body="ForkBody", answer="Session", status=201, is_keyed=True
    ),
    ("GET", _SESSION + "/turns"): Call(
        answer="TurnList", query=(("all", {"type": "boolean", "default": False}),)
    ),
    ("POST", _SESSION + "/turns"): Call(body="TurnBody", answer="Turn", stream="TurnEvent"),
    ("GET", _TURN): Call(answer="Turn", stream="TurnEvent", query=_CURSOR),
    ("POST", _TURN + "/cancel"): Call(body="EmptyBody", answer="Turn"),
    ("POST", _TURN + "/regenerate"): Call(body="RegenerateBody", answer="Turn", stream="TurnEvent"),
    ("POST", _TURN + "/continue"): Call(body="ContinueBody", answer="Turn", stream="TurnEvent"),
    ("POST", _SESSION + "/warm"): Call(body="WarmBody", answer="Warmed"),
    ("POST", _SESSION + "/park"): Call(body="ParkBody", answer="Parked"),
    ("GET", _SESSION + "/kv"): Call(answer="Tables"),
    ("GET", "/v1/cache"): Call(answer="Cache"),
    ("POST", "/v1/cache/verify"): Call(body="EmptyBody", answer="Verified"),
    ("POST", "/v1/cache/collect"): Call(body="EmptyBody", answer="Collected"),
    ("GET", "/v1/ws"): Call(frames=("ClientFrame", "ServerFrame")),
    ("GET", _RESPONSES): Call(frames=("ResponseClientFrame", "ResponseServerFrame")),
    ("POST", _RESPONSES): Call(
        body="ResponseBody", answer="Turn", stream="TurnEvent", is_keyed=True
    ),
    ("POST", _RESPONSES + "/input_tokens"): Call(body="InputBody", answer="InputTokens"),
    ("POST", _RESPONSES + "/compact"): Call(body="InputBody", answer="Compacted"),
    ("GET", _RESPONSE): Call(answer="Turn", stream="TurnEvent", query=(*_CURSOR, *_INCLUDE)),
    ("DELETE", _RESPONSE): Call(answer="DeletedResponse"),
    ("POST", _RESPONSE + "/cancel"): Call(body="EmptyBody", answer="Turn"),
    ("GET", _RESPONSE + "/input_items"): Call(answer="ItemList", query=(*_PAGE, *_INCLUDE)),
    ("POST", "/v1/conversations"): Call(
        body="ConversationBody", answer="Conversation", is_keyed=True
    ),
    ("GET", _CONVERSATION): Call(answer="Conversation"),
    ("POST", _CONVERSATION): Call(body="ConversationChange", answer="Conversation"),
    ("DELETE", _CONVERSATION): Call(answer="DeletedConversation"),
    ("GET", _ITEMS): Call(answer="ItemList", query=(*_PAGE, *_INCLUDE)),
    ("POST", _ITEMS): Call(body="ItemsBody", answer="ItemList", is_keyed=True),
    ("GET", _ITEMS + "/{item}"): Call(answer="Item"),
    ("DELETE", _ITEMS + "/{item}"): Call(answer="Conversation"),
    ("POST", "/v1/chat/completions"): Call(body="ChatBody"),
    ("POST", "/v1/completions"): Call(body="CompletionBody"),
    ("POST", "/v1/ws-tickets"): Call(body="EmptyBody", answer="Ticket", status=201),
}
