"""OpenAI's pages of items: `after`, `limit` and `order`."""

from typing import Any

from aiohttp import web

from app.parsing import integer_of
from app.representation import list_object
from sessions.catalog import MAX_PAGE
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.pages import ItemFilter
from sessions.types import ItemId

Json = dict[str, Any]


def check_includes(request: web.Request) -> None:
    """Refuse what can't be included; what there is none of, or what is always there, is ignored."""
    named = [*request.query.getall("include[]", []), *request.query.getall("include", [])]
    if "message.output_text.logprobs" in named:
        raise UnsupportedInputError(
            "log probabilities are shown with their response only", param="include"
        )


def page_wanted(request: web.Request) -> ItemFilter:
    """Which page a request asks for; newest first unless it says otherwise."""
    check_includes(request)
    order = request.query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidInputError("order must be asc or desc", param="order")
    after = request.query.get("after")
    return ItemFilter(
        limit=integer_of(request, "limit", 20, minimum=1, maximum=MAX_PAGE),
        after=ItemId(after) if after else None,
        is_descending=order == "desc",
    )


def page_of(request: web.Request, oldest_first: list[Json]) -> Json:
    """The page that a request asks for."""
    wanted = page_wanted(request)
    items = oldest_first[::-1] if wanted.is_descending else oldest_first
    if wanted.after is not None:
        place = next((n for n, item in enumerate(items) if item["id"] == wanted.after), None)
        if place is None:
            raise InvalidInputError("no item of the list has that id", param="after")
        items = items[place + 1 :]
    return list_object(items[: wanted.limit], has_more=len(items) > wanted.limit)
