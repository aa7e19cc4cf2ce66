"""The synchronous client: the same, without await."""

import asyncio
import threading

import pytest

from app.protocol import TurnBody
from splice import (
    AsyncClient,
    AsyncSession,
    AsyncSessions,
    AsyncStream,
    Client,
    NotFoundError,
    Session,
    Sessions,
    Stream,
    TextDelta,
    TurnOptions,
)
from tests.support.scripted_api import (
    ScriptedApi,
    answer,
    refuse,
    session_json,
    stream,
    turn_events,
    turn_json,
)


@pytest.fixture
def served():
    """Serve a script from another thread, as a server would be."""
    running = []

    def serve(*answers):
        server = _InAThread(ScriptedApi(*answers))
        running.append(server)
        return server.api

    yield serve
    for server in running:
        server.stop()


class _InAThread:
    def __init__(self, api):
        self.api = api
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),))
        self._thread.start()
        assert self._ready.wait(5)

    async def _run(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self.api.serving():
            self._ready.set()
            await self._stop.wait()

    def stop(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


def test_a_conversation_without_await(served):
    api = served(
        answer(session_json(), status=201),
        stream(*turn_events("Hel", "lo")),
        stream(*turn_events("a", "b")),
        answer({"data": [turn_json("Hello", status="completed")]}),
    )
    with Client(api.url) as client:
        session = client.sessions.create(title="t")
        turn = session.send("hi")
        pieces = list(session.stream("more").text_stream)
        turns = session.turns()

    assert (session.id, turn.text, pieces) == ("conv_1", "Hello", ["a", "b"])
    assert [t.id for t in turns] == ["resp_1"]
    assert api.requests[0][2] == {"title": "t"}


def test_events_are_iterated_and_the_turn_is_there_at_the_end(served):
    api = served(answer(session_json()), stream(*turn_events("x")))
    with Client(api.url) as client:
        reading = client.sessions.get("conv_1").stream("hi")
        numbers = [event.sequence_number for event in reading]

    assert numbers == [0, 1, 2, 3, 4]
    assert reading.turn is not None
    assert reading.turn.text == "x"


def test_errors_come_out_as_they_are(served):
    api = served(refuse(404, "session_not_found", x_should_retry="false"))
    with Client(api.url) as client, pytest.raises(NotFoundError) as caught:
        client.sessions.get("conv_9")

    assert caught.value.code == "session_not_found"


def test_a_list_is_read_page_by_page(served):
    pages = [
        {"data": [session_json("conv_1")], "has_more": True, "last_id": "conv_1"},
        {"data": [session_json("conv_2")], "has_more": False, "last_id": "conv_2"},
    ]
    api = served(*map(answer, pages))
    with Client(api.url) as client:
        assert [session.id for session in client.sessions.list()] == ["conv_1", "conv_2"]


def test_a_stream_may_be_left_early(served):
    api = served(answer(session_json()), stream(*turn_events("a", "b")))
    with Client(api.url) as client, client.sessions.get("conv_1").stream("hi") as reading:
        first = next(event for event in reading if isinstance(event, TextDelta))

    assert first.delta == "a"
    assert reading.last_sequence_number == first.sequence_number


def test_closing_twice_does_no_harm(served):
    client = Client(served().url)

    client.close()
    client.close()

    assert not [t for t in threading.enumerate() if t.name == "splice-client"]


@pytest.mark.parametrize(
    ("plain", "awaited", "attributes"),
    [
        (Client, AsyncClient, set()),
        (Sessions, AsyncSessions, set()),
        (Session, AsyncSession, {"info"}),
        (Stream, AsyncStream, {"turn", "last_sequence_number"}),
    ],
)
def test_both_clients_have_the_same_methods(plain, awaited, attributes):
    def public(kind):
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(plain) == public(awaited) | attributes


def test_a_turn_may_be_given_whatever_the_server_takes():
    assert set(TurnOptions.__annotations__) == set(TurnBody.model_fields) - {"input", "stream"}
