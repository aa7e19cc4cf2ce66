"""The client package as agents take it: a session's handle holds their conversation."""

from collections.abc import AsyncIterator

import pytest
from agents import Runner, Session, SessionSettings
from agents.models.openai_responses import OpenAIResponsesModel

from splice import AsyncClient
from tests.clients.reporter import TALKING, reporter


@pytest.fixture
async def splice(server: str) -> AsyncIterator[AsyncClient]:
    """A client that can't be outdone by a lost connection."""
    async with AsyncClient(server) as client:
        yield client


def agent_of(openai, *settings):
    """An agent whose model is the server's."""
    return reporter(OpenAIResponsesModel(model="default", openai_client=openai), *settings)


async def test_a_session_is_an_agents_memory(splice):
    session = await splice.sessions.create(title="Memory")
    memory = session.agents()
    assert isinstance(memory, Session)
    async with splice.openai() as openai:
        agent = agent_of(openai, TALKING)
        first = await Runner.run(agent, "My name is Ann.", session=memory)
        second = await Runner.run(agent, "What is my name?", session=memory)

    assert [(item.role, item.text) for item in await session.history()] == [
        ("user", "My name is Ann."),
        ("assistant", first.final_output),
        ("user", "What is my name?"),
        ("assistant", second.final_output),
    ]
    assert len(second.to_input_list()) == 4
    memory.session_settings = SessionSettings(limit=1)
    assert [item["role"] for item in await memory.get_items()] == ["assistant"]


async def test_a_memory_keeps_calls_and_their_results(splice):
    session = await splice.sessions.create(title="Weather")
    async with splice.openai() as openai:
        result = await Runner.run(agent_of(openai), "Is it raining?", session=session.agents())
        await Runner.run(agent_of(openai), "And now?", session=session.agents())

    items = await session.history()
    assert result.final_output is not None
    kinds = [item.type for item in items]
    assert kinds == ["message", "function_call", "function_call_output", "message"] * 2
    assert items[2].text.startswith("It rains in ")
    assert items[1].call_id == items[2].call_id


async def test_a_conversation_of_the_servers_is_a_session(splice):
    session = await splice.sessions.create(title="Held by the server")
    async with splice.openai() as openai:
        agent = agent_of(openai, TALKING)
        first = await Runner.run(agent, "My name is Ann.", conversation_id=session.id)
        streamed = Runner.run_streamed(agent, "What is my name?", conversation_id=session.id)
        async for _ in streamed.stream_events():
            pass

    turns = await session.turns()
    assert [turn.text for turn in turns] == [first.final_output, streamed.final_output]
    assert turns[1].metrics.reused >= turns[0].usage.input_tokens
