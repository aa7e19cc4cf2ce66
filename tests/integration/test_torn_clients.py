"""The client package while its connections tear, and while its server is started again: nothing is
said twice, left out, or done twice."""

import asyncio

import pytest

from splice import AsyncClient, AsyncSessions, TextDelta
from splice.endpoint import Endpoint
from splice.openai_client import async_openai
from splice.transport import Transport
from tests.support.fake_engine import FakeReply
from tests.support.scripted_api import Naps
from tests.support.scripted_server import ScriptedServer
from tests.support.scripted_worker import text_of
from tests.support.torn_wire import TornWire
from tests.support.whole_front import serving_whole

PIECES = tuple(f"{number} " for number in range(8))
STEP_BYTES = 900
MAX_BYTES = 9000

pytestmark = pytest.mark.timeout(300)


async def converse(wire):
    """A session, two turns, a fork and some items, over whatever happens to the connections."""
    transport = Transport(Endpoint.at(wire.url, max_retries=6), sleep=Naps())
    session = await AsyncSessions(transport).create(title="torn")
    events = [event async for event in session.stream("hi")]
    second = await session.send("and?")
    await session.add([{"role": "user", "content": "aside"}])
    fork = await session.fork()
    await transport.close()
    return session, events, second, fork


async def test_wherever_connections_tear_nothing_is_done_or_said_twice(tmp_path):
    async with (
        serving_whole(tmp_path) as front,
        TornWire(front.client.port).open() as wire,
    ):
        for num_bytes in range(0, MAX_BYTES, STEP_BYTES):
            front.engine.replies += [FakeReply(pieces=PIECES), FakeReply(pieces=PIECES)]
            wire.cuts = [num_bytes] * 4
            session, events, second, fork = await converse(wire)

            assert [e.sequence_number for e in events] == list(range(len(events)))
            pieces = [e.delta for e in events if isinstance(e, TextDelta)]
            assert "".join(pieces) == "".join(PIECES) == second.text
            path = f"/v1/sessions/{session.id}/turns?all=true"
            turns = (await front.call("GET", path))[1]["data"]
            assert [turn["id"] for turn in turns][:2] == [events[0].turn.id, second.id]
            assert len(turns) == 3
            assert fork.info.forked_from == turns[2]["id"]
        listed = (await front.call("GET", "/v1/sessions?limit=100"))[1]["data"]

    assert len(listed) == 2 * len(range(0, MAX_BYTES, STEP_BYTES))
    assert wire.num_torn >= 20


async def test_a_reply_that_a_restart_cuts_goes_on_to_the_same_words(tmp_path):
    flags = ("--drain-timeout-s", "0.1")
    with ScriptedServer(tmp_path, *flags, step_ms=5) as server:
        async with AsyncClient(server.url, max_retries=40) as client:
            session = await client.sessions.create()
            stream = session.stream("Count.", max_output_tokens=400)
            events = []
            async for event in stream:
                events.append(event)
                if len(events) == 30:
                    await asyncio.to_thread(server.stop)
                    await asyncio.to_thread(server.start)
            cut = stream.turn
            whole = await session.go_on(cut, max_output_tokens=100)

    shown = "".join(e.delta for e in events if isinstance(e, TextDelta))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert (cut.status, cut.incomplete_reason) == ("incomplete", "server_restart")
    assert shown == cut.text
    assert cut.text == text_of(len(cut.text.split()))
    assert whole.text == text_of(len(cut.text.split()) + 100)


async def test_openais_client_says_nothing_twice_wherever_its_connection_tears(tmp_path):
    async with (
        serving_whole(tmp_path) as front,
        TornWire(front.client.port).open() as wire,
    ):
        for num_bytes in range(0, 3000, 500):
            front.engine.replies.append(FakeReply(pieces=PIECES))
            transport = Transport(Endpoint.at(front.base_url))
            session = await AsyncSessions(transport).create(title="torn")
            wire.cuts = [num_bytes]
            async with async_openai(Endpoint.at(wire.url), session.id) as openai:
                response = await openai.responses.create(input="hi")
            turns = await session.turns(whole_tree=True)
            await transport.close()

            assert [turn.id for turn in turns] == [response.id]
            assert response.output_text == "".join(PIECES)
