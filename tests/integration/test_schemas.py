"""Two hundred schemas, each with bounds of all kinds, asked of the embedded model by OpenAI's own
client: every reply is complete, and valid by a validator that knows nothing of grammars."""

import asyncio
import json

import jsonschema
import openai
import pytest

from tests.support.grammars import random_schema

NUM_AT_ONCE = 8
SEEDS = [pytest.param(range(4)), pytest.param(range(2000, 2200), marks=pytest.mark.full)]

pytestmark = pytest.mark.timeout(1500)


async def written_by(client, seed, form):
    completion = await client.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": f"Write any JSON, the {seed}th."}],
        response_format={"type": "json_schema", "json_schema": {"name": "any", "schema": form}},
        seed=seed,
        temperature=1,
        max_completion_tokens=2000,
    )
    (choice,) = completion.choices
    return choice.finish_reason, choice.message.content


@pytest.mark.parametrize("seeds", SEEDS)
async def test_replies_in_random_bounded_schemas_are_complete_and_valid(live_server, seeds):
    places = asyncio.Semaphore(NUM_AT_ONCE)

    async def hold_to_schema(client, seed):
        form = random_schema(seed)
        async with places:
            reason, text = await written_by(client, seed, form)
        assert reason == "stop", (form, text[-200:])
        jsonschema.validate(json.loads(text), form)

    async with openai.AsyncOpenAI(
        base_url=f"{live_server}/v1", api_key="any", max_retries=0
    ) as client:
        await asyncio.gather(*(hold_to_schema(client, seed) for seed in seeds))
