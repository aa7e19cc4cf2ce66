"""`prompt_cache_diagnostics`: what became of the cache, and of what the prompt is compared with."""

import pytest

from tests.support import tiny_tokenizer as tiny
from tests.support.core_engine import CoreEngine
from tests.support.fake_engine import FakeReply
from tests.support.front_end import receive
from tests.support.whole_front import serving_whole

TOOL = {"type": "function", "name": "f", "description": "Does it.", "parameters": {}}
COMPACT = [{"type": "compaction", "compact_threshold": 1}]


class Same(dict):
    """One reply to everything."""

    def __init__(self, reply):
        super().__init__()
        self._reply = reply

    def get(self, seed, default=None):
        return self._reply


@pytest.fixture
def ask(client):
    async def made(text="x", compared=None, **fields):
        if compared is not None:
            fields["prompt_cache_options"] = {"comparison_response_id": compared.id}
        return await client.responses.create(input=text, **fields)

    return made


def said(response):
    told = response.prompt_cache_diagnostics
    return told.type, getattr(told, "reason", None), told.comparison_response_id


async def test_what_follows_a_response_says_what_changed_since(tmp_path):
    """By the claims of the engine's own core."""
    tokenizer = tiny.make_tokenizer(tiny.SMOLLM2)
    engine = CoreEngine(tokenizer)
    engine.runner.replies = Same((0, tokenizer.eos_token_id))
    async with serving_whole(tmp_path, engine=engine) as front:

        async def ask(text="x", **fields):
            body = {"input": text, "instructions": "Be brief.", **fields}
            status, made = await front.call("POST", "/v1/responses", json=body)
            assert status == 200, made
            told = made["prompt_cache_diagnostics"]
            return made["id"], (told["type"], told.get("reason"), told["comparison_response_id"])

        first, new = await ask("one " * 20)
        assert new == ("comparison_response_not_found", None, None)
        for fields, expected in (
            ({}, ("cache_hit", None)),
            ({"instructions": "Be long."}, ("cache_miss", "input_changed")),
            ({"tools": [TOOL]}, ("cache_miss", "tools_changed")),
            ({"context_management": COMPACT}, ("cache_miss", "context_compacted")),
        ):
            _, told = await ask(previous_response_id=first, **fields)
            assert told == (*expected, first), fields


async def test_a_response_that_is_named_is_compared_by_its_tokens(front, ask):
    first = await ask("one " * 20)
    second = await ask("two", previous_response_id=first.id)

    on = await ask("three", compared=first, previous_response_id=second.id)
    assert said(on) == ("cache_hit", None, first.id)
    shared = on.prompt_cache_diagnostics.comparison_reusable_tokens
    assert first.usage.input_tokens < shared <= first.usage.total_tokens
    assert on.prompt_cache_diagnostics.cache_missed_tokens == on.usage.input_tokens - shared

    sibling = await ask("other", compared=second, previous_response_id=first.id)
    assert said(sibling) == ("cache_miss", "input_changed", second.id)
    assert sibling.prompt_cache_diagnostics.comparison_reusable_tokens >= shared - 1
    again = await ask("one " * 20, compared=first)
    assert said(again)[::2] in (("cache_hit", first.id), ("unavailable", first.id))
    tools = await ask("three", compared=first, previous_response_id=second.id, tools=[TOOL])
    assert said(tools) == ("cache_miss", "tools_changed", first.id)

    front.engine.becomes(fingerprint="another")
    model = await ask("three", compared=first)
    assert said(model) == ("cache_miss", "model_changed", first.id)
    assert model.prompt_cache_diagnostics.comparison_reusable_tokens == 0


async def test_a_comparison_is_the_same_whenever_the_response_is_shown(front, ask):
    first = await ask()
    made = await ask(compared=first)
    status, shown = await front.call("GET", f"/v1/responses/{made.id}")

    assert status == 200
    assert shown["prompt_cache_diagnostics"] == made.prompt_cache_diagnostics.to_dict()


async def test_what_is_not_there_or_not_over_cannot_be_compared_with(front, ask):
    first = await ask()
    await front.call("DELETE", f"/v1/responses/{first.id}")
    assert said(await ask(compared=first)) == ("comparison_response_not_found", None, first.id)

    unstored = await ask(store=False)
    for kept in (True, False):
        made = await ask(compared=unstored, store=kept)
        assert said(made) == ("comparison_response_not_found", None, unstored.id)

    front.engine.replies.append(FakeReply(holds_after=1))
    running = (await front.call("POST", "/v1/responses", json={"input": "x", "background": True}))[
        1
    ]
    options = {"prompt_cache_options": {"comparison_response_id": running["id"]}}
    status, made = await front.call("POST", "/v1/responses", json={"input": "x", **options})
    told = made["prompt_cache_diagnostics"]
    assert (status, told["type"]) == (200, "comparison_response_not_found")
    assert told["comparison_response_id"] == running["id"]
    front.engine.let_go()


@pytest.mark.parametrize("named", ["a\0b", "x" * 600, 7])
async def test_a_name_that_is_none_is_refused_where_it_stands(front, named):
    options = {"prompt_cache_options": {"comparison_response_id": named}}
    status, answer = await front.call("POST", "/v1/responses", json={"input": "x", **options})

    assert status == 400
    assert answer["error"]["param"] == "prompt_cache_options.comparison_response_id"


async def test_a_lane_compares_with_what_it_follows(front):
    async with front.client.ws_connect("/v1/responses") as ws:

        async def made(**fields):
            await ws.send_json({"type": "response.create", "store": False, **fields})
            while (frame := await receive(ws))["type"] != "response.completed":
                assert frame["type"] not in ("error", "response.failed"), frame
            return frame["response"]

        first = await made(input="one")
        named = {"prompt_cache_options": {"comparison_response_id": first["id"]}}
        second = await made(input="two", previous_response_id=first["id"], **named)

    told = second["prompt_cache_diagnostics"]
    assert (told["type"], told["comparison_response_id"]) == ("cache_hit", first["id"])
    assert told["comparison_reusable_tokens"] > first["usage"]["input_tokens"]
