"""A span for each turn, in the trace that its request named, with the engine's own times."""

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from app.open_telemetry import OpenTelemetry
from model.errors import SequenceFailedError
from tests.support.fake_engine import FakeReply
from tests.support.front_end import receive_until
from tests.support.whole_front import serving_whole

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
TICK_S = 0.001  # of the clock
SECRET = "my darkest secret"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
async def front(tmp_path, exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = OpenTelemetry(provider, "1")
    async with serving_whole(tmp_path, tracing) as front:
        yield front
    tracing.close()


async def say(front, headers=None):
    session = await front.session()
    path = f"/v1/sessions/{session['id']}/turns"
    return (await front.call("POST", path, json={"input": SECRET}, headers=headers))[1]


def by_name(exporter):
    return {span.name: span for span in exporter.get_finished_spans()}


def seconds(span, turn):
    begin = turn.start_time
    return (span.start_time - begin) / 1e9, (span.end_time - begin) / 1e9


async def test_a_turn_is_a_span_with_what_it_waited_for_below_it(front, exporter):
    answer = await say(front)

    spans = by_name(exporter)
    turn = spans["turn"]
    assert list(spans) == ["queue", "prefill", "decode", "turn"]
    before = TICK_S  # from its submission to the engine's clock
    assert seconds(spans["queue"], turn) == pytest.approx((0, before + 0.25))
    assert seconds(spans["prefill"], turn) == pytest.approx((before + 0.25, before + 0.5))
    assert seconds(spans["decode"], turn) == pytest.approx((before + 0.5, before + 1.5))
    assert seconds(turn, turn) == pytest.approx((0, before + 1.5))
    assert {span.parent.span_id for name, span in spans.items() if name != "turn"} == {
        turn.context.span_id
    }
    assert turn.parent is None
    assert turn.attributes["gen_ai.response.id"] == answer["id"]
    assert turn.attributes["gen_ai.usage.output_tokens"] == answer["usage"]["output_tokens"]
    assert turn.attributes["splice.kv.reason"] == "new"


async def test_a_span_has_no_word_of_what_people_wrote(front, exporter):
    front.engine.replies.append(FakeReply(pieces=(SECRET,)))
    await say(front)

    assert SECRET not in "".join(span.to_json() for span in exporter.get_finished_spans())


async def test_a_turn_belongs_to_the_trace_that_its_request_names(front, exporter):
    await say(front, TRACEPARENT)
    await say(front)

    named, unnamed = [s for s in exporter.get_finished_spans() if s.name == "turn"]
    assert f"{named.context.trace_id:032x}" == TRACE
    assert f"{named.parent.span_id:016x}" == PARENT
    assert f"{unnamed.context.trace_id:032x}" != TRACE
    assert unnamed.parent is None


async def test_a_trace_that_is_not_sampled_is_left_out(front, exporter):
    await say(front, {"traceparent": f"00-{TRACE}-{PARENT}-00"})

    assert exporter.get_finished_spans() == ()


async def test_a_header_that_is_none_begins_a_new_trace(front, exporter):
    await say(front, {"traceparent": "00-nonsense"})

    assert by_name(exporter)["turn"].parent is None


async def test_a_turn_that_a_client_left_is_still_in_its_trace(front, exporter):
    front.engine.replies.append(FakeReply(holds_after=1))
    session = await front.session()
    path = f"/v1/sessions/{session['id']}/turns"
    body = {"input": "hi", "stream": True}
    async with front.client.post(path, json=body, headers=TRACEPARENT) as response:
        await response.content.readline()
    front.engine.let_go()
    async with asyncio.timeout(10):
        while not exporter.get_finished_spans():  # noqa: ASYNC110 (the turn's end tells nobody)
            await asyncio.sleep(0.01)

    assert f"{by_name(exporter)['turn'].context.trace_id:032x}" == TRACE


async def test_a_turn_of_a_websocket_belongs_to_the_trace_of_its_opening(front, exporter):
    session = await front.session()
    async with front.client.ws_connect("/v1/ws", headers=TRACEPARENT) as ws:
        frame = {"type": "response.create", "conversation": session["id"], "input": "hi"}
        await ws.send_json(frame)
        await receive_until(ws, "response.completed")

    assert f"{by_name(exporter)['turn'].context.trace_id:032x}" == TRACE


async def test_a_turn_that_failed_is_an_error_with_its_code(front, exporter):
    front.engine.replies.append(FakeReply(error=SequenceFailedError("broken")))
    await say(front)

    (turn,) = exporter.get_finished_spans()
    assert turn.status.status_code is StatusCode.ERROR
    assert turn.attributes["error.type"] == SequenceFailedError.code
