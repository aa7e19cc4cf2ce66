"""However a turn ended, a restarted server tells it again, same numbers, from any cursor."""

import pytest

from model.errors import SequenceFailedError
from model.messages import FinishReason
from tests.support.fake_engine import FakeReply
from tests.support.front_end import receive
from tests.support.whole_front import serving_whole

ENDS = {"response.completed", "response.incomplete", "response.failed"}


async def read_to_the_end(ws):
    frames = [await receive(ws)]
    while frames[-1]["type"] not in ENDS:
        frames.append(await receive(ws))
    return frames


async def ended_by_itself(front, ws, session):
    front.engine.replies.append(FakeReply(pieces=("a", "bc", "d")))
    return await begun(ws, session)


async def cut_at_its_length(front, ws, session):
    front.engine.replies.append(FakeReply(pieces=("a", "b"), reason=FinishReason.LENGTH))
    return await begun(ws, session)


async def empty(front, ws, session):
    front.engine.replies.append(FakeReply(pieces=()))
    return await begun(ws, session)


async def failed(front, ws, session):
    front.engine.replies.append(FakeReply(pieces=("a",), error=SequenceFailedError("it broke")))
    return await begun(ws, session)


async def cancelled(front, ws, session):
    front.engine.replies.append(FakeReply(pieces=("a", "b"), holds_after=1))
    turn = (await begun(ws, session))["response_id"]
    await front.engine.held(turn)
    await ws.send_json({"type": "response.cancel", "response_id": turn})


async def drained(front, ws, session):
    front.engine.replies.append(FakeReply(pieces=("a", "b"), holds_after=1))
    await front.engine.held((await begun(ws, session))["response_id"])
    await front.manager.drain(0)


async def gone_on_with(front, ws, session):
    await cut_at_its_length(front, ws, session)
    turn = (await read_to_the_end(ws))[-1]["response"]["id"]
    front.engine.replies.append(FakeReply(pieces=("c",)))
    await ws.send_json({"type": "response.continue", "response_id": turn})


async def begun(ws, session):
    await ws.send_json({"type": "response.create", "conversation": session["id"], "input": "hi"})
    frame = await receive(ws)
    assert frame["type"] == "response.created"
    return frame


ENDINGS = [ended_by_itself, cut_at_its_length, empty, failed, cancelled, drained, gone_on_with]


@pytest.mark.parametrize("come_to_an_end", ENDINGS, ids=lambda ending: ending.__name__)
async def test_a_replay_is_the_same_from_every_cursor(come_to_an_end, tmp_path):
    async with serving_whole(tmp_path) as front, front.client.ws_connect("/v1/ws") as ws:
        session = await front.session()
        await come_to_an_end(front, ws, session)
        rest = await read_to_the_end(ws)
        turn = rest[-1]["response_id"]
        await ws.send_json({"type": "response.resume", "response_id": turn})
        live = await read_to_the_end(ws)

    assert [frame["sequence_number"] for frame in live] == list(range(len(live)))
    assert [f for f in live if f["sequence_number"] >= rest[0]["sequence_number"]] == rest
    async with serving_whole(tmp_path) as front, front.client.ws_connect("/v1/ws") as ws:
        for cursor in range(-1, len(live) + 2):
            frame = {"type": "response.resume", "response_id": turn, "starting_after": cursor}
            await ws.send_json(frame)
            # Behind its end a turn still tells how it ended.
            assert await read_to_the_end(ws) == (live[cursor + 1 :] or live[-1:])
