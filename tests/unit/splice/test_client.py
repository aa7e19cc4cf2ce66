"""The synchronous client: the same, without await."""

import asyncio
import contextlib
import inspect
import threading

import pytest

from app.protocol import RegenerateBody, TurnBody
from splice import (
    AsyncClient,
    AsyncSession,
    AsyncSessions,
    AsyncStream,
    Client,
    NotFoundError,
    ReplyOptions,
    Session,
    Sessions,
    Stream,
    TextDelta,
    TurnOptions,
)
from tests.support.scripted_api import (
    answer,
    refuse,
    session_json,
    stream,
    stream_head,
    turn_events,
    turn_json,
)
from tests.support.server_thread import ServerThread


@pytest.fixture
def served():
    """Serve a script from another thread, as a server would be."""
    with contextlib.ExitStack() as running:
        yield lambda *answers: running.enter_context(ServerThread(*answers))


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


def test_threads_share_one_client(served):
    """Each has a stream of its own; what they read does not mix."""
    api = served(answer(session_json()), *[stream(*turn_events(*("abc" for _ in range(20))))] * 6)
    texts = {}

    def read(session, number):
        texts[number] = list(session.stream(str(number)).text_stream)

    with Client(api.url) as client:
        session = client.sessions.get("conv_1")
        threads = [threading.Thread(target=read, args=(session, n)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert texts == {number: ["abc"] * 20 for number in range(6)}
    assert sorted(body["input"] for _, _, body in api.requests[1:]) == list("012345")


def test_a_closed_client_says_that_it_is(served):
    client = Client(served().url)
    client.close()

    with pytest.raises(RuntimeError, match="the client is closed"):
        client.models()


def test_whoever_waits_while_the_client_is_closed_is_told(served):
    is_read, told = threading.Event(), []

    async def hold(request):
        response = await stream_head(request, *turn_events("a")[:1])
        while request.transport and not request.transport.is_closing():  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
        return response

    api = served(answer(session_json()), hold)
    client = Client(api.url)
    session = client.sessions.get("conv_1")

    def read():
        try:
            for _ in session.stream("hi"):
                is_read.set()
        except RuntimeError as exc:
            told.append(str(exc))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert is_read.wait(10)
    client.close()
    thread.join(10)

    assert told == ["the client is closed"]


def test_closing_twice_does_no_harm(served):
    client = Client(served().url)

    client.close()
    client.close()

    assert not [t for t in threading.enumerate() if t.name == "splice-client"]


@pytest.mark.parametrize(
    ("plain", "awaited", "attributes", "only_awaited"),
    [
        (Client, AsyncClient, set(), set()),
        (Sessions, AsyncSessions, set(), set()),
        (Session, AsyncSession, {"info"}, {"agents"}),
        (Stream, AsyncStream, {"turn", "last_sequence_number"}, set()),
    ],
)
def test_both_clients_have_the_same_methods(plain, awaited, attributes, only_awaited):
    def public(kind):
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(plain) == (public(awaited) | attributes) - only_awaited


def _parameters(kind, name):
    return {
        name: (parameter.kind, parameter.default, parameter.annotation)
        for name, parameter in inspect.signature(getattr(kind, name)).parameters.items()
    }


@pytest.mark.parametrize(
    ("plain", "awaited"),
    [(Client, AsyncClient), (Sessions, AsyncSessions), (Session, AsyncSession)],
)
def test_methods_of_one_name_take_the_same(plain, awaited):
    methods = [
        name
        for name, member in vars(plain).items()
        if inspect.isfunction(member) and not name.startswith("_")
    ]

    assert len(methods) >= 5
    for name in methods:
        assert _parameters(plain, name) == _parameters(awaited, name), name


@pytest.mark.parametrize(
    ("ours", "theirs"), [(TurnOptions, TurnBody), (ReplyOptions, RegenerateBody)]
)
def test_a_turn_may_be_given_whatever_the_server_takes(ours, theirs):
    assert set(ours.__annotations__) == set(theirs.model_fields) - {"input", "stream"}
