"""What agents are promised: a loop computes only what is new, a fork of a prepared state shares it.

The real engine core does the books; what the model says is scripted.
"""

import itertools

import pytest

from sessions.token_log import common_prefix
from tests.support import tiny_tokenizer as tiny
from tests.support.core_engine import CoreEngine
from tests.support.front_end import receive
from tests.support.whole_front import serving_whole

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": %d}}\n</tool_call>'


class Agent:
    """Asks over one socket, in lanes; each reply is scripted under a seed of its own."""

    def __init__(self, ws, engine, tokenizer):
        self._ws, self._engine, self._tokenizer = ws, engine, tokenizer
        self._seeds = itertools.count(1)

    async def ask(self, given, reply="fine", **fields):
        """Ask, and do not wait for the answer."""
        seed = next(self._seeds)
        ids = self._tokenizer.encode(reply, add_special_tokens=False)
        self._engine.runner.replies[seed] = [*ids, self._tokenizer.eos_token_id]
        body = {"type": "response.create", "input": given, "seed": seed, **fields}
        await self._ws.send_json(body)

    async def ended(self):
        """The next response that ends."""
        while (frame := await receive(self._ws))["type"] != "response.completed":
            assert frame["type"] not in ("error", "response.failed", "response.incomplete"), frame
        return frame["response"]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_loop_of_twenty_calls_computes_the_sum_of_what_is_new(tmp_path, is_stored):
    tokenizer = tiny.make_tokenizer(tiny.SMOLLM2)
    engine = CoreEngine(tokenizer, num_blocks=4096)
    async with (
        serving_whole(tmp_path, engine=engine) as front,
        front.client.ws_connect("/v1/responses") as ws,
    ):
        agent = Agent(ws, engine, tokenizer)
        given, previous, responses = "Look twenty times.", {}, []
        for number in range(20):
            await agent.ask(
                given,
                f"Next.\n{CALL % number}",
                tools=[TOOL],
                instructions="Be an agent.",
                store=is_stored,
                **previous,
            )
            response = await agent.ended()
            (call,) = [item for item in response["output"] if item["type"] == "function_call"]
            result = {"type": "function_call_output", "call_id": call["call_id"]}
            given = [{**result, "output": f"At {number} there is nothing."}]
            previous = {"previous_response_id": response["id"]}
            responses.append(response)
        store = front.manager._store
        spans = await store.spans(responses[-1]["id"]) if is_stored else ()

    computed = sum(r["splice"]["metrics"]["rows_computed"] for r in responses)
    assert computed == engine.runner.num_rows
    last = responses[-1]["usage"]
    logged = sum(len(span.ids) for span in spans) or last["total_tokens"]
    assert logged == last["total_tokens"]
    assert computed <= logged * 1.01
    assert responses[0]["conversation"] == responses[-1]["conversation"]


async def test_eight_lanes_share_a_prepared_state_of_four_thousand_tokens(tmp_path):
    tokenizer = tiny.make_tokenizer(tiny.SMOLLM2)
    engine = CoreEngine(tokenizer, num_blocks=4096)
    text = ("hello world, " * 4000)[:16_000]
    async with (
        serving_whole(tmp_path, engine=engine) as front,
        front.client.ws_connect("/v1/responses") as ws,
    ):
        agent = Agent(ws, engine, tokenizer)
        await agent.ask(text, instructions="Be brief.", generate=False)
        warm = await agent.ended()
        for lane in range(8):
            await agent.ask(
                f"Part {lane}?", previous_response_id=warm["id"], stream_id=f"lane-{lane}"
            )
        forks = [await agent.ended() for _ in range(8)]

    assert warm["usage"]["input_tokens"] >= 4000
    prepared, *asked = engine.requests
    prompts = {request.request_id: request.token_ids for request in asked}
    history_rows = 0
    for fork in forks:
        shared = common_prefix(prepared.token_ids, prompts[fork["id"]])
        assert shared > warm["usage"]["input_tokens"] - 8
        history_rows += shared - fork["usage"]["input_tokens_details"]["cached_tokens"]
    assert history_rows <= 8
