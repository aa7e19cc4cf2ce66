"""What all owners may share of a prompt, and nothing more."""

from datetime import UTC, datetime

import pytest

from model.config import SamplingParams
from sessions.manager import ManagerConfig, SessionManager
from sessions.public_prefix import PublicPrefixes
from sessions.types import InputMessage, OwnerId
from tests.support.chat import ask
from tests.support.core_engine import BLOCK_SIZE, CoreEngine
from tests.support.templates import FAMILIES, renderer_of, tokenizer_of

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SYSTEM = "You answer in rhymes."
ONE_TOKEN = SamplingParams(temperature=0.0, max_output_tokens=1)


def says(role, text):
    return InputMessage(role=role, text=text)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_prompt_s_public_start_is_the_same_whoever_speaks(family):
    renderer = renderer_of(family)
    public = PublicPrefixes(renderer, frozenset({SYSTEM}))
    lead = (says("system", SYSTEM),)

    num = public.count(lead, NOW)

    one = renderer.whole((*lead, says("user", "My secret is blue.")), clock_at=NOW)
    other = renderer.whole((*lead, says("user", "Rain?")), clock_at=NOW)
    assert num > 0
    assert one[:num] == other[:num]
    assert num == public.count(lead, NOW)  # and every time


def test_what_nobody_declared_is_its_owner_s():
    public = PublicPrefixes(renderer_of("chatml"), frozenset({SYSTEM}))

    assert public.count((says("system", SYSTEM + " "),), NOW) == 0
    assert public.count((says("system", SYSTEM), says("developer", "And briefly.")), NOW) == 0


def test_without_instructions_what_the_template_says_itself_is_public():
    renderer = renderer_of("chatml_named")  # it names a default system prompt
    public = PublicPrefixes(renderer, frozenset())

    num = public.count((says("user", "My secret is blue."),), None)

    text = renderer._template.decode(renderer.whole((says("user", "x"),))[:num])
    assert "helpful assistant" in text


async def test_owners_share_the_blocks_of_public_instructions_and_nothing_behind(store, clock):
    engine = CoreEngine(tokenizer_of("chatml"))
    config = ManagerConfig(runner_id="runner-1", public_instructions=frozenset({SYSTEM}))
    claims, request = {}, ask("My secret is blue.", params=ONE_TOKEN)
    async with SessionManager(store=store, engine=engine, clock=clock, config=config) as manager:
        manager.use_renderer(renderer_of("chatml"))
        for owner in ("ann", "bob", "ann"):
            session = await manager.create(OwnerId(owner), instructions=SYSTEM)
            turn = await manager.submit(session.owner, session.id, request)
            async for _ in manager.read(session.owner, turn.id):
                pass
            claims[owner] = (await manager.turn(session.owner, turn.id)).usage.claim

    num_public = engine.requests[0].num_public_tokens
    num_prompt = len(engine.requests[0].token_ids)
    # Bob finds the full blocks of the public start; Ann, the second time, those of it all.
    assert claims["bob"].from_device == num_public // BLOCK_SIZE * BLOCK_SIZE > 0
    assert claims["ann"].from_device >= (num_prompt - 1) // BLOCK_SIZE * BLOCK_SIZE
