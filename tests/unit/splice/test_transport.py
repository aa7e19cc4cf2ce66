"""The client's calls against a server that follows a script: errors, and what is sent again."""

import contextlib
import socket

import pytest

from splice import (
    APIStatusError,
    AsyncSession,
    AsyncSessions,
    AuthenticationError,
    BadRequestError,
    ConflictError,
    ConnectionLostError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ServerError,
    UnavailableError,
)
from splice.endpoint import Endpoint
from splice.transport import Transport
from tests.support.scripted_api import (
    Naps,
    ScriptedApi,
    answer,
    refuse,
    session_at,
    session_json,
    vanish,
)


@pytest.fixture
def naps():
    return Naps()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (401, AuthenticationError),
        (403, PermissionDeniedError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, BadRequestError),
        (429, OverloadedError),
        (500, ServerError),
        (502, UnavailableError),
        (503, UnavailableError),
        (507, ServerError),
        (418, APIStatusError),
    ],
)
async def test_each_status_has_its_error(naps, status, kind):
    api = ScriptedApi(refuse(status, "c", x_should_retry="false"))

    async with api.serving():
        transport, session = session_at(api, naps)
        with pytest.raises(kind) as caught:
            await session.refresh()
        await transport.close()

    assert caught.value.status == status


async def test_an_error_that_is_no_json_still_has_its_status(naps):
    async def page(request):
        from aiohttp import web

        return web.Response(status=400, text="<html>")

    api = ScriptedApi(page)
    async with api.serving():
        transport, session = session_at(api, naps)
        with pytest.raises(BadRequestError, match="Bad Request"):
            await session.refresh()
        await transport.close()


async def test_what_answers_and_is_no_splice_is_no_connection(naps):
    async def page(request):
        from aiohttp import web

        return web.Response(text="<html>", content_type="text/html")

    async def half(request):
        from aiohttp import web

        return web.Response(text="{", content_type="application/json")

    api = ScriptedApi(page, half)
    async with api.serving():
        transport, session = session_at(api, naps)
        for _ in range(2):
            with pytest.raises(ConnectionLostError, match="is no Splice"):
                await session.refresh()
        await transport.close()


async def test_a_server_that_is_not_there_is_a_lost_connection(naps):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = Endpoint.at(f"127.0.0.1:{unused.getsockname()[1]}")
        transport = Transport(endpoint, sleep=naps)
        with pytest.raises(ConnectionLostError, match="no answer from"):
            await AsyncSession(transport, session_json()).refresh()
        await transport.close()

    assert len(naps.lengths) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda session: session.fork(),
        lambda session: session.add([{"role": "user", "content": "hi"}]),
        lambda session: AsyncSessions(session._transport).create(title="t"),
        lambda session: AsyncSessions(session._transport).bring_in({"turns": []}),
    ],
    ids=["fork", "items", "session", "import"],
)
async def test_what_is_made_is_sent_again_under_the_same_key(naps, make):
    made = {**session_json(), "data": []}
    api = ScriptedApi(vanish, refuse(503, "draining"), answer(made), answer(made))
    async with api.serving():
        transport, session = session_at(api, naps)
        await make(session)
        await make(session)
        await transport.close()

    *sent, another = [headers["Idempotency-Key"] for headers in api.headers]
    assert len(set(sent)) == 1
    assert another != sent[0]
    assert api.requests[0] == api.requests[1] == api.requests[2]


@pytest.mark.parametrize("expected", [{"expected_revision": 3}, {}])
async def test_a_change_is_sent_again_unless_it_says_what_it_goes_on_from(naps, expected):
    api = ScriptedApi(vanish, answer(session_json(title="b")))
    async with api.serving():
        transport, session = session_at(api, naps)
        if expected:
            with pytest.raises(ConnectionLostError):
                await session.update(title="b", **expected)
        else:
            assert (await session.rename("b")).title == "b"
        await transport.close()

    assert len(api.requests) == (1 if expected else 2)


@pytest.mark.parametrize(("status", "num_sent"), [(409, 1), (502, 1), (504, 1), (429, 2), (503, 2)])
async def test_a_change_that_is_made_once_is_sent_again_only_if_nothing_was_done(
    naps, status, num_sent
):
    """A gateway that lost the answer can't tell; a session that is further on stays so."""
    api = ScriptedApi(refuse(status, "c", x_should_retry="true"), answer(session_json(title="b")))
    async with api.serving():
        transport, session = session_at(api, naps)
        with contextlib.suppress(APIStatusError):
            await session.update(title="b", expected_revision=3)
        await transport.close()

    assert len(api.requests) == num_sent
    assert (session.info.title == "b") is (num_sent == 2)
