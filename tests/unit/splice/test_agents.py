"""The shape that openai-agents asks of a session, without that package."""

import inspect
import sys

import pytest

from splice.agents import AgentsSession
from tests.support.scripted_api import Naps, ScriptedApi, answer, session_at

ASKED = {
    "get_items": [("limit", None)],
    "add_items": [("items", inspect.Parameter.empty)],
    "pop_item": [],
    "clear_session": [],
}


def test_it_has_the_members_of_the_protocol():
    for name, parameters in ASKED.items():
        method = getattr(AgentsSession, name)
        assert inspect.iscoroutinefunction(method)
        (_, *taken) = inspect.signature(method).parameters.values()
        assert [(p.name, p.default) for p in taken] == parameters
    assert "agents" not in sys.modules


class Settings:
    """As openai-agents' own."""

    limit = 2


@pytest.mark.parametrize(
    ("settings", "limit", "num_items"),
    [
        (None, None, 3),
        (Settings(), None, 2),
        ({"limit": 2}, None, 2),
        (Settings(), 1, 1),
        ({"limit": None}, None, 3),
        (Settings(), 0, 0),
    ],
)
async def test_settings_and_the_caller_say_how_much_is_shown(settings, limit, num_items):
    items = [{"id": f"msg_{n}", "type": "message", "role": "user"} for n in range(3)]
    page = {"data": items[::-1], "has_more": False, "last_id": "msg_0"}
    api = ScriptedApi(*[answer(page)] * bool(num_items))
    async with api.serving():
        transport, session = session_at(api, Naps())
        memory = session.agents()
        memory.session_settings = settings
        shown = await memory.get_items(limit)
        await transport.close()

    assert shown == items[len(items) - num_items :]
